"""The processes of a run as one team over TCP: they meet, agree, and are told who is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
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
from trainer.meeting import TORCHRUN_PORTS
from trainer.peers import PeerWatch
from trainer.tcp_team import TcpTeam, join
from trainer.team import Team
from trainer.wire import Closed, Foreign, Inbox, Unreachable, prepare, send

QUICK = DistConfig(join_timeout=5, timeout=5)


def world(rank: int, size: int, port: int, launcher: Any = "orch") -> World:
    return World(rank=rank, size=size, coordinator=f"127.0.0.1:{port}", launcher=launcher)


def everywhere(size: int, work: Callable[[Team], Any], port: int = 0, config: DistConfig = QUICK, **more: Any) -> Any:
    """The answers of all ranks, or the errors; each rank is a thread with sockets of its own."""
    port = port or free_port()

    def one(rank: int) -> Any:
        try:
            team = join(world(rank, size, port, **more), config, "run x attempt 1")
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


def test_one_alone_gets_what_many_would() -> None:
    team = join(World(), QUICK)
    assert team.gather({"pair": (1, 2), "number": 0.1}) == [{"pair": [1, 2], "number": 0.1}]
    host, _, port = team.meeting_place().rpartition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)


def test_side_channels_have_an_order_of_their_own() -> None:
    def work(team: Team) -> Any:
        rank = team.world.rank
        sides = [team.side_channel(5) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            told = [pool.submit(lambda at, side: [side.gather((at, rank, turn)) for turn in range(30)], at, side)
                    for at, side in enumerate(sides)]  # fmt: skip
            main = [team.gather(turn) for turn in range(30)]
            return main, [future.result() for future in told]

    main, sides = everywhere(3, work)[0]
    assert main == [[turn] * 3 for turn in range(30)]
    assert sides == [[[[at, rank, turn] for rank in range(3)] for turn in range(30)] for at in range(3)]


def test_rank_0_may_be_the_last_to_use_a_side_channel() -> None:
    def work(team: Team) -> Any:
        side = team.side_channel(5)
        time.sleep(0.3 if team.world.rank == 0 else 0)
        return side.gather(team.world.rank)

    assert everywhere(2, work) == [[0, 1], [0, 1]]


def test_the_meeting_place_is_free_and_the_same_for_all() -> None:
    places = set(everywhere(3, lambda team: team.meeting_place()))
    assert len(places) == 1
    host, _, port = places.pop().rpartition(":")
    with socket.socket() as listener:
        listener.bind((host, int(port)))


def test_the_same_port_serves_the_next_attempt_at_once() -> None:
    port = free_port()
    for _ in range(5):
        assert everywhere(3, lambda team: team.gather(1), port) == [[1, 1, 1]] * 3


@pytest.fixture
def strangers() -> Iterator[Callable[[int], None]]:
    """Connections that talk nonsense, or nothing, to a port; they stay open."""
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


def test_strangers_disturb_nobody(strangers: Callable[[int], None]) -> None:
    port = free_port()
    late = threading.Thread(target=strangers, args=(port,))
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
def test_a_rank_of_another_attempt_waits_for_its_own_and_says_whom_it_met() -> None:
    port = free_port()
    told: list[str] = []

    def stranger(team: Team) -> Any:
        if team.world.rank == 0:
            with pytest.raises(PeerError) as caught:
                join(world(1, 2, port), DistConfig(join_timeout=1), "run x attempt 2")
            told.append(str(caught.value))
        return team.gather(None)

    assert everywhere(2, stranger, port) == [[None, None]] * 2
    assert "here is run x attempt 1, not run x attempt 2" in told[0]


@pytest.mark.promise("P35")
def test_who_did_not_come_is_named_on_every_rank_that_did() -> None:
    port = free_port()
    quick = DistConfig(join_timeout=1)
    with ThreadPoolExecutor(2) as pool:
        errors = [
            error.exception()
            for error in [pool.submit(join, world(rank, 4, port), quick, "run x attempt 1") for rank in (0, 3)]
        ]
    for rank, error in zip((0, 3), errors, strict=True):
        assert isinstance(error, PeerError)
        assert f"rank {rank} of 4 could not meet the others at 127.0.0.1:{port} within 1 s" in str(error)
        assert "ranks 1, 2 did not come" in str(error)


@pytest.mark.promise("P36")
def test_ranks_that_count_differently_do_not_meet() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        three = pool.submit(join, world(1, 3, port), DistConfig(join_timeout=1), "run x attempt 1")
        # It gives up first, and its port then refuses without a word.
        two = pool.submit(join, world(0, 2, port), DistConfig(join_timeout=0.6), "run x attempt 1")
        assert "here are 2 ranks, not 3" in str(three.exception())
        assert "rank 1 did not come" in str(two.exception())


@pytest.mark.promise("P35")
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_rank_that_leaves_is_named_at_once_on_every_other(gone: int) -> None:
    def work(team: Team) -> Any:
        team.gather(None)
        if team.world.rank == gone:
            return team.close()
        begun = time.monotonic()
        try:
            team.gather(None)
        except PeerError as error:
            return str(error), time.monotonic() - begun < 2
        return "nothing noticed"

    answers = everywhere(3, work)
    assert [answers[rank] for rank in range(3) if rank != gone] == [
        (f"rank {rank} lost rank {gone}: it has left", True) for rank in range(3) if rank != gone
    ]


@pytest.mark.promise("P35")
def test_a_rank_that_does_not_answer_is_named_after_the_limit() -> None:
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


def test_under_torchrun_a_taken_master_port_is_no_hindrance() -> None:
    port = two_free_ports()
    with socket.socket() as agent, socket.socket() as other:
        agent.bind(("127.0.0.1", port))
        agent.listen()
        other.bind(("127.0.0.1", port + 1))
        assert TORCHRUN_PORTS > 1
        assert everywhere(2, lambda team: team.gather(1), port, launcher="torchrun") == [[1, 1]] * 2


@pytest.mark.promise("P35")
def test_a_rank_that_fails_tells_the_others_why() -> None:
    def work(team: Team) -> Any:
        watch = PeerWatch(team, 5)
        with watch:
            team.gather(None)
            if team.world.rank == 1:
                raise DataError("no such file")
            try:
                team.gather(None)
            except PeerError as error:
                explained = str(watch.explained(error))
                watch.over()
                return explained
        return ""

    answers = everywhere(3, work)
    assert answers[0] == "rank 0 lost rank 1: it ended with error[data]: no such file"
    assert answers[2] == "rank 2 lost rank 1: it ended with error[data]: no such file"


def test_a_watched_team_that_ends_well_is_left_in_peace() -> None:
    def work(team: Team) -> Any:
        assert isinstance(team, TcpTeam)
        with PeerWatch(team, 5) as watch:
            team.gather(None)
            watch.over()
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
def test_ranks_that_mean_another_run_are_told_which_value_differs(
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
        agree_on_run(team, config, DataState(0, 0, 8, 32, "x", 1000, 256, mine.get("fingerprint", "a")))
        return agree_on_program(team, mine.get("program", "this"))

    for answer in everywhere(2, work):
        assert type(answer) is kind
        assert words in str(answer)


def test_json_that_is_too_deep_is_no_value_of_ours() -> None:
    one, other = socket.socketpair()
    with one, other:
        text = b"[" * 100_000
        one.sendall(len(text).to_bytes(4, "big") + text)
        with pytest.raises(Foreign):
            Inbox(other).receive(time.monotonic() + 5)


@pytest.mark.promise("P35")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives a connection up on demand")
def test_a_connection_that_the_kernel_gives_up_is_no_limit_of_ours() -> None:
    """To Python both are a TimeoutError; after ours a rank that lives is waited for, after the other nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            inbox = Inbox(prepare(one))
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
                    one.send(bytes(1 << 20))  # nobody takes it
            with pytest.raises(Unreachable):
                inbox.receive(time.monotonic() + 20)
            with pytest.raises(Closed):
                send(one, "more", time.monotonic() + 5)
