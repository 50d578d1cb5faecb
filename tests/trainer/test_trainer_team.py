"""The processes of a run as one team over TCP: they meet, agree, and learn which rank is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from trainer_ranks import free_port

from trainer.config import Config, DistConfig
from trainer.environment import World
from trainer.errors import ConfigError, DataError, PeerError, TrainerError
from trainer.peers import PeerWatch
from trainer.rendezvous import TORCHRUN_PORTS, Rendezvous, find_free_port
from trainer.tcp_team import TcpTeam, join_team
from trainer.team import Team
from trainer.wire import (
    ConnectionClosed,
    Inbox,
    InvalidMessage,
    PeerUnreachable,
    configure_socket,
    encode_value,
    send_value,
)

QUICK = DistConfig(join_timeout=5, timeout=5)


def world(rank: int, size: int, port: int, launcher: Any = "orch") -> World:
    return World(rank=rank, size=size, coordinator=f"127.0.0.1:{port}", launcher=launcher)


def everywhere(size: int, work: Callable[[Team], Any], port: int = 0, config: DistConfig = QUICK, **more: Any) -> Any:
    """Return the answers of all ranks, or the errors; each rank is a thread with its own sockets."""
    port = port or free_port()

    def one(rank: int) -> Any:
        try:
            team = join_team(world(rank, size, port, **more), config, "run x attempt 1")
        except TrainerError as error:
            return error
        try:
            return work(team)
        except TrainerError as error:
            return error
        finally:
            team.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def test_every_rank_gets_every_value_in_rank_order() -> None:
    def work(team: Team) -> Any:
        return [team.gather({"rank": team.world.rank, "turn": turn, "bulk": "x" * 100_000}) for turn in range(20)]

    expected = [[{"rank": rank, "turn": turn, "bulk": "x" * 100_000} for rank in range(4)] for turn in range(20)]
    assert everywhere(4, work) == [expected] * 4


def test_single_rank_gets_the_same_values_as_many_would() -> None:
    team = join_team(World(), QUICK)
    assert team.gather({"pair": (1, 2), "number": 0.1}) == [{"pair": [1, 2], "number": 0.1}]
    host, _, port = team.rendezvous_address().rpartition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)


def test_each_side_channel_has_its_own_order() -> None:
    def work(team: Team) -> Any:
        rank = team.world.rank
        sides = [team.side_channel(5) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            reported = [pool.submit(lambda at, side: [side.gather((at, rank, turn)) for turn in range(30)], at, side)
                    for at, side in enumerate(sides)]  # fmt: skip
            main = [team.gather(turn) for turn in range(30)]
            return main, [future.result() for future in reported]

    main, sides = everywhere(3, work)[0]
    assert main == [[turn] * 3 for turn in range(30)]
    assert sides == [[[[at, rank, turn] for rank in range(3)] for turn in range(30)] for at in range(3)]


def test_rank_0_may_be_the_last_to_use_a_side_channel() -> None:
    def work(team: Team) -> Any:
        side = team.side_channel(5)
        time.sleep(0.3 if team.world.rank == 0 else 0)
        return side.gather(team.world.rank)

    assert everywhere(2, work) == [[0, 1], [0, 1]]


def test_rendezvous_address_is_free_and_the_same_on_all_ranks() -> None:
    places = set(everywhere(3, lambda team: team.rendezvous_address()))
    assert len(places) == 1
    host, _, port = places.pop().rpartition(":")
    with socket.socket() as listener:
        listener.bind((host, int(port)))


def test_a_free_port_is_not_in_use_on_another_address() -> None:
    with contextlib.ExitStack() as held:
        in_use = set[int]()
        for _ in range(600):
            neighbour = held.enter_context(socket.socket())
            neighbour.bind(("127.0.0.9", 0))
            in_use.add(neighbour.getsockname()[1])
        assert in_use.isdisjoint(find_free_port("127.0.0.8") for _ in range(600))


def test_the_same_port_serves_the_next_attempt_immediately() -> None:
    port = free_port()
    for _ in range(5):
        assert everywhere(3, lambda team: team.gather(1), port) == [[1, 1, 1]] * 3


@pytest.fixture
def other_programs() -> Iterator[Callable[[int], None]]:
    """Open connections that send nonsense, or nothing, to a port; they stay open."""
    held: list[socket.socket] = []

    def come(port: int) -> None:
        greeting = b'{"identity": "run y attempt 1", "size": 2, "rank": 1, "channel": 0}'
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"", b"\0\0\0\x02[]", len(greeting).to_bytes(4, "big") + greeting):
            with_patience = time.monotonic() + 3
            while True:
                try:
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    break
                except OSError:
                    assert time.monotonic() < with_patience
                    time.sleep(0.02)
            held[-1].sendall(words)

    yield come
    for connection in held:
        connection.close()


def test_connections_of_other_programs_disturb_no_rank(other_programs: Callable[[int], None]) -> None:
    port = free_port()
    late = threading.Thread(target=other_programs, args=(port,))
    late.start()

    def work(team: Team) -> Any:
        late.join()
        return team.gather(team.world.rank), team.side_channel(5).gather(team.world.rank)

    def join_late(team: Team) -> Any:
        return work(team)

    begun = time.monotonic()
    assert everywhere(2, join_late, port) == [([0, 1], [0, 1])] * 2
    assert time.monotonic() - begun < 4


@pytest.mark.promise("P36")
def test_rank_of_another_attempt_waits_for_its_own_and_reports_which_one_it_met() -> None:
    port = free_port()
    reported: list[str] = []

    def other_attempt(team: Team) -> Any:
        if team.world.rank == 0:
            with pytest.raises(PeerError) as caught:
                join_team(world(1, 2, port), DistConfig(join_timeout=1), "run x attempt 2")
            reported.append(str(caught.value))
        return team.gather(None)

    assert everywhere(2, other_attempt, port) == [[None, None]] * 2
    assert "this is run x attempt 1, not run x attempt 2" in reported[0]


def test_another_program_learns_no_run_and_sends_no_large_greeting() -> None:
    port = free_port()

    def strange(greeting: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(greeting)
            return connection.recv(1000)

    def work(team: Team) -> Any:
        answers: list[bytes] = []
        if team.world.rank == 0:
            answers.append(strange(encode_value({"identity": "run y attempt 1", "size": 2, "rank": 1, "channel": 0})))
            begun = time.monotonic()
            answers.append(strange(struct.pack("!I", 1 << 20)))
            assert time.monotonic() - begun < 4, "it is not waited for"
        team.gather(None)
        return answers

    refusal, large = everywhere(2, work, port)[0]
    assert b"another run" in refusal and b"run x" not in refusal
    assert large == b""


@pytest.mark.promise("P35")
def test_missing_ranks_are_named_on_every_rank_that_arrived() -> None:
    port = free_port()
    quick = DistConfig(join_timeout=1)
    with ThreadPoolExecutor(2) as pool:
        errors = [
            error.exception()
            for error in [pool.submit(join_team, world(rank, 4, port), quick, "run x attempt 1") for rank in (0, 3)]
        ]
    for rank, error in zip((0, 3), errors, strict=True):
        assert isinstance(error, PeerError)
        assert f"rank {rank} of 4 could not meet the others at 127.0.0.1:{port} within 1 s" in str(error)
        assert "ranks 1, 2 did not come" in str(error)


@pytest.mark.promise("P36")
def test_ranks_with_different_world_sizes_do_not_meet() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        three = pool.submit(join_team, world(1, 3, port), DistConfig(join_timeout=1), "run x attempt 1")
        # It gives up first, and its port then refuses without a word.
        two = pool.submit(join_team, world(0, 2, port), DistConfig(join_timeout=0.6), "run x attempt 1")
        assert "this run has 2 ranks, not 3" in str(three.exception())
        assert "rank 1 did not come" in str(two.exception())


@pytest.mark.promise("P35")
@pytest.mark.parametrize("leaving", [0, 1, 2])
def test_rank_that_leaves_is_named_immediately_on_every_other(leaving: int) -> None:
    def work(team: Team) -> Any:
        team.gather(None)
        if team.world.rank == leaving:
            return team.close()
        begun = time.monotonic()
        try:
            team.gather(None)
        except PeerError as error:
            return str(error), time.monotonic() - begun < 2
        return "nothing noticed"

    answers = everywhere(3, work)
    assert [answers[rank] for rank in range(3) if rank != leaving] == [
        (f"rank {rank} lost rank {leaving}: it has left", True) for rank in range(3) if rank != leaving
    ]


@pytest.mark.promise("P35")
def test_rank_that_does_not_answer_is_named_after_the_timeout() -> None:
    def work(team: Team) -> Any:
        if team.world.rank == 2:
            time.sleep(1.0)
        return team.gather(None)

    answers = everywhere(3, work, config=DistConfig(join_timeout=5, timeout=1 / 2))
    for rank in range(3):
        assert isinstance(answers[rank], PeerError), answers
        assert f"rank {rank} lost rank" in str(answers[rank])
    assert "rank 0 lost rank 2: rank 2 did not answer (limit 0.5 s)" in str(answers[0])
    assert "rank 1 lost rank 2: rank 2 did not answer (limit 0.5 s)" in str(answers[1])


def two_free_ports() -> int:
    """The first of two in a row."""
    while True:
        port = free_port()
        with socket.socket() as next_one, contextlib.suppress(OSError):
            next_one.bind(("127.0.0.1", port + 1))
            return port


def test_taken_master_port_under_torchrun_is_tolerated() -> None:
    port = two_free_ports()
    with socket.socket() as agent, socket.socket() as other:
        agent.bind(("127.0.0.1", port))
        agent.listen()
        other.bind(("127.0.0.1", port + 1))
        assert TORCHRUN_PORTS > 1
        assert everywhere(2, lambda team: team.gather(1), port, launcher="torchrun") == [[1, 1]] * 2


@pytest.mark.promise("P35")
def test_rank_that_fails_reports_to_the_others_why() -> None:
    def work(team: Team) -> Any:
        watch = PeerWatch(team, 5)
        with watch:
            team.gather(None)
            if team.world.rank == 1:
                raise DataError("no such file")
            try:
                team.gather(None)
            except PeerError as error:
                explained = str(watch.explain_loss(error))
                watch.finish()
                return explained
        return ""

    answers = everywhere(3, work)
    assert answers[0] == "rank 0 lost rank 1: it ended with error[data]: no such file"
    assert answers[2] == "rank 2 lost rank 1: it ended with error[data]: no such file"


def test_watched_team_that_succeeds_is_not_ended() -> None:
    def work(team: Team) -> Any:
        assert isinstance(team, TcpTeam)
        with PeerWatch(team, 5) as watch:
            team.gather(None)
            watch.finish()
        time.sleep(0.2 * team.world.rank)
        return "fine"

    assert everywhere(3, work) == ["fine"] * 3


@pytest.mark.promise("P36")
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"steps": 7}, ConfigError, "rank 1 has steps=7, rank 0 has steps=200"),
        ({"fingerprint": "b"}, DataError, "rank 1 reads another corpus than rank 0 (fingerprint b instead of a)"),
        ({"python": "3.9.1"}, ConfigError, "rank 1 has python=3.9.1, rank 0 has python="),
        ({"program": "other"}, ConfigError, "rank 1 would run another step (other) than rank 0 (this)"),
        ({"threads": 3}, type(None), "None"),  # a host's own affair
        ({}, type(None), "None"),
    ],
)
def test_rank_set_up_for_another_run_gets_the_value_that_differs(
    change: dict[str, Any], kind: type, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import platform

    from trainer.agreement import agree_on_program, agree_on_run
    from trainer.data.state import DataState

    real = platform.python_version()
    odd = threading.local()
    monkeypatch.setattr(platform, "python_version", lambda: getattr(odd, "python", real))

    def work(team: Team) -> Any:
        mine = change if team.world.rank == 1 else {}
        odd.python = mine.get("python", real)
        config = dataclasses.replace(
            Config(engine="torch"), **{n: v for n, v in mine.items() if n in ("steps", "threads")}
        )
        agree_on_run(
            team,
            config,
            DataState(
                step=0,
                seed=0,
                batch=8,
                seq_len=32,
                source="x",
                total_tokens=1000,
                vocab=256,
                fingerprint=mine.get("fingerprint", "a"),
            ),
        )
        return agree_on_program(team, mine.get("program", "this"))

    for answer in everywhere(2, work):
        assert type(answer) is kind
        assert words in str(answer)


def test_rank_that_has_closed_its_own_connection_lost_no_rank() -> None:
    """A copy of the descriptor keeps the connection in the selector, so that closing always falls into the wait."""
    one, other = socket.socketpair()
    with one, other, one.dup():
        team = TcpTeam(Rendezvous(world(0, 2, 1), "run x attempt 1"), 5, inboxes={1: Inbox(one)})
        lost: list[tuple[int, str]] = []

        def leave() -> bool:
            if one.fileno() != -1:
                other.sendall(encode_value({"bye": ""})[:3])
                one.close()
            return False

        team.listen(lambda rank, why: lost.append((rank, why)), leave)
        assert lost == []


def test_json_that_is_too_deep_is_an_invalid_message() -> None:
    one, other = socket.socketpair()
    with one, other:
        text = b"[" * 100_000
        one.sendall(len(text).to_bytes(4, "big") + text)
        with pytest.raises(InvalidMessage):
            Inbox(other).receive(time.monotonic() + 5)


@pytest.mark.promise("P35")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives a connection up on demand")
def test_connection_given_up_by_the_kernel_is_distinguished_from_our_timeout() -> None:
    """Both are a TimeoutError in Python; only after ours may the other rank still answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            inbox = Inbox(configure_socket(one))
            idle, pause, count = (
                one.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{word}"))
                for word in ("IDLE", "INTVL", "CNT")
            )
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and idle + pause * count <= 20
            with pytest.raises(TimeoutError):
                inbox.receive(time.monotonic() + 0.05)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 100)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.send(bytes(1 << 20))  # no one reads it
            with pytest.raises(PeerUnreachable):
                inbox.receive(time.monotonic() + 20)
            with pytest.raises(ConnectionClosed):
                send_value(one, "more", time.monotonic() + 5)
