"""Finding processes, and ending exactly those that are meant."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_support import eventually, is_alive

from orchestrator.providers.local import addresses, processes
from orchestrator.providers.local.addresses import Place, choose_places, is_free, keep_free, loopback_address

FORKER = """
import os, sys, time
depth = int(sys.argv[1])
while depth:
    depth -= 1
    os.fork()
    time.sleep(0.005)
time.sleep(1000)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], env={"PATH": "/usr/bin:/bin", processes.MARK: "abc:1:"}) as child:
        yield child
        child.kill()


def test_process_is_found_with_its_parent_and_a_start_that_stays(child: subprocess.Popen[bytes]) -> None:
    found = processes.find(child.pid)
    assert found is not None
    assert found.parent == os.getpid()
    assert processes.snapshot()[child.pid] == found


def test_name_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "1000"]) as process:
        try:
            assert eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "a) R 1 (b\n")
            found = processes.find(process.pid)
            assert found is not None
            assert found.parent == os.getpid()
        finally:
            process.kill()


def test_mark_is_found_by_its_beginning_and_not_by_another(child: subprocess.Popen[bytes]) -> None:
    def marked(mark: str) -> bool:
        return child.pid in [process.pid for process in processes.carrying(processes.snapshot(), mark)]

    assert eventually(lambda: marked("abc:1:"))
    assert marked("abc:")
    assert not marked("abc:11:")
    assert not marked("bc:1:")


def test_signal_for_a_process_that_is_gone_does_not_reach_its_successor(child: subprocess.Popen[bytes]) -> None:
    found = processes.find(child.pid)
    assert found is not None
    earlier = processes.Process(pid=found.pid, parent=found.parent, start="0@another boot", zombie=False)
    processes.send(earlier, signal.SIGKILL)
    processes.send(processes.Process(pid=2**22 + 5, parent=1, start="0", zombie=False), signal.SIGKILL)
    assert child.poll() is None
    processes.send(found, signal.SIGKILL)
    assert child.wait(timeout=20) == -signal.SIGKILL


def test_sweep_ends_a_tree_that_grows_while_it_is_swept() -> None:
    mark = f"grown:{os.getpid()}:"
    env = {"PATH": "/usr/bin:/bin", processes.MARK: mark}
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", FORKER, "7"], env=env) as root:
        try:
            grown: list[processes.Process] = []  # their numbers alone may soon be those of others

            def below(table: processes.Table) -> list[processes.Process]:
                found = processes.descendants(table, [root.pid])
                grown.extend(found)
                return found

            def left() -> list[processes.Process]:
                table = processes.snapshot()
                return [one for one in grown if one.is_same(table.get(one.pid)) and not table[one.pid].zombie]

            assert eventually(lambda: len(below(processes.snapshot())) > 3)
            assert processes.sweep(below, limit=20) == []
            assert left() == []
            assert is_alive(root.pid)
        finally:
            root.kill()  # whose parent was ended before they were seen is below nobody
            assert processes.sweep(lambda table: processes.carrying(table, mark), limit=20) == []


def test_sweep_waits_for_those_it_killed_also_when_nobody_names_them_any_more(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be a while in dying, and below nobody by then: its parent was ended with it."""
    found = processes.find(child.pid)
    assert found is not None
    later = threading.Timer(0.3, child.kill)
    monkeypatch.setattr(processes, "send", lambda process, number: later.start() if later.ident is None else None)
    named = iter([[found]])
    assert processes.sweep(lambda _: next(named, []), limit=20) == []
    assert not is_alive(child.pid)


def test_sweep_tells_who_cannot_be_ended() -> None:
    me = processes.find(os.getpid())
    assert me is not None
    immortal = processes.Process(pid=me.pid, parent=me.parent, start="of another process", zombie=False)
    assert processes.sweep(lambda _: [immortal], limit=0.02) == [immortal]


@pytest.mark.skipif(sys.platform != "linux", reason="compares the two ways to look")
def test_ps_says_the_same_as_proc(child: subprocess.Popen[bytes]) -> None:
    by_proc, by_ps = processes.find(child.pid), processes._ask_ps()[child.pid]
    assert by_proc is not None
    assert (by_ps.pid, by_ps.parent, by_ps.zombie) == (by_proc.pid, by_proc.parent, by_proc.zombie)
    assert processes._ask_ps()[child.pid] == by_ps, "the start must stay the same from look to look"
    assert child.pid in processes._marked_by_ps(f"{processes.MARK}=abc:1:".encode())
    assert child.pid not in processes._marked_by_ps(f"{processes.MARK}=abc:2:".encode())


@given(st.integers(0, 2**64), st.integers(1, 2000))
def test_neighbouring_addresses_differ_and_are_loopback(number: int, step: int) -> None:
    first, second = loopback_address(number), loopback_address(number + step)
    assert first != second
    for address in (first, second):
        parts = [int(part) for part in address.split(".")]
        assert len(socket.inet_aton(address)) == 4
        assert parts[0] == 127
        assert 1 <= parts[1] <= 254
        assert 1 <= parts[3] <= 254


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has more than one loopback address")
def test_each_host_gets_an_address_of_its_own() -> None:
    places = choose_places("seed", 70)
    assert len({place.host for place in places}) == 70
    assert choose_places("seed", 70) == places
    assert choose_places("another", 70)[0].host != places[0].host


def test_where_only_one_loopback_address_exists_the_ports_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    # 192.0.2.0/24 is for documentation (RFC 5737): no computer has it, as none but Linux has 127.1.2.3.
    monkeypatch.setattr(addresses, "loopback_address", lambda number: f"192.0.2.{number % 254 + 1}")
    places = choose_places("seed", 20)
    assert {place.host for place in places} == {"127.0.0.1"}
    assert len({place.port for place in places}) == 20
    assert all(map(is_free, places))


def test_only_ranks_whose_port_was_taken_move() -> None:
    places = choose_places("moving", 3)
    with closing(socket.socket()) as other:
        other.bind((places[1].host, places[1].port))
        other.listen()
        assert not is_free(places[1])
        moved = keep_free(places, [0, 1])
    assert (moved[0], moved[2]) == (places[0], places[2])
    assert moved[1] == Place(places[1].host, moved[1].port)
    assert moved[1].port != places[1].port
    assert keep_free(places, [0, 1, 2]) == places
    assert keep_free(places, [0], other=True)[0].port != places[0].port
