"""Hosts behind a program that makes the connection: real children between real sshds and the fleet."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import Farm, sshd_farm

from orchestrator.hosts import Failure, HostAddress, proxy_argv, ssh_argv
from orchestrator.remote.connect import Link, fabric_config
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.fleet import Fleet, FleetResult
from orchestrator.remote.identities import KeyRing
from orchestrator.remote.proxy import start_proxy

# Brings bytes between its standard input and output and a TCP port, as `gcloud compute start-iap-tunnel` does.
# Notes its process id; what it has heard is said to its standard error when it ends.
RELAY = """
import os, select, socket, sys
host, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
open(f"{folder}/{os.getpid()}", "w").close()
print("WARNING: a word before the work", file=sys.stderr, flush=True)
try:
    far = socket.create_connection((host, port), 5)
except OSError as error:
    print(f"ERROR: (relay) cannot connect: {error}", file=sys.stderr)
    sys.exit(3)
while True:
    ready, _, _ = select.select([0, far], [], [])
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            sys.exit(0)
        far.sendall(data)
    if far in ready:
        data = far.recv(65536)
        if not data:
            print("ERROR: (relay) the far end has gone", file=sys.stderr)
            sys.exit(4)
        os.write(1, data)
"""


class Ways:
    """Four hosts, each reached by its own relay; `pids` are those of all relays started."""

    def __init__(self, farm: Farm, folder: Path) -> None:
        self.farm, self.folder = farm, folder
        (folder / "relay.py").write_text(RELAY)
        (folder / "pids").mkdir()
        self.notes = str(folder / "pids").replace("%", "%%")  # as ssh wants a percent sign written
        words = (sys.executable, str(folder / "relay.py").replace("%", "%%"), "%h", "%p", self.notes)
        self.hosts = [replace(host, proxy=words) for host in farm.addresses]

    @property
    def pids(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "pids").iterdir())

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def comes_true(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("farm"), 4) as farm:
        yield farm


@pytest.fixture
def ways(four: Farm, tmp_path: Path) -> Iterator[Ways]:
    """In a folder whose name would be read as tokens, were it not written as ssh wants it."""
    folder = tmp_path / "50%h of %%"
    folder.mkdir()
    made = Ways(four, folder)
    yield made
    for pid in made.alive:
        os.kill(pid, signal.SIGKILL)


def verdicts(result: FleetResult) -> list[str]:
    return [host.outcome.verdict for host in result.hosts]


def test_four_hosts_are_reached_each_by_its_own_program(ways: Ways) -> None:
    with Fleet(ways.hosts, deadline=20) as fleet:
        result = fleet.run("echo $ORCH_TEST_HOST; cat", stdin=b"x" * 300_000, keep=1 << 20, timeout=60)
        assert result.ok, result.failed
        seen = [host.output.split(b"\n")[0].decode() for host in result.hosts]
        assert seen == [host.mark for host in ways.farm.hosts]
        assert all(host.output.endswith(b"x" * 300_000) for host in result.hosts)
        assert fleet.run("true", timeout=60).ok
        assert len(ways.alive) == 4  # the second command went over the same four


def test_the_programs_end_with_the_connections(ways: Ways) -> None:
    with Fleet(ways.hosts, deadline=20) as fleet:
        assert fleet.reachable(timeout=20).ok
        assert len(ways.alive) == 4
    assert not ways.alive
    assert not [pid for pid in ways.pids if Path(f"/proc/{pid}").exists()], "one is left as a zombie"


def test_a_program_that_takes_no_notice_of_the_end_is_ended_with_its_children(ways: Ways) -> None:
    shell = 'trap \'\' TERM HUP; sleep 600 & echo $! > "$0"/$!; echo $$ > "$0"/$$; exec 3<&0; "$@" <&3; sleep 600'
    words = ("bash", "-c", shell, ways.notes, *ways.hosts[0].proxy)
    with Fleet([replace(ways.hosts[0], proxy=words)], deadline=20) as fleet:
        assert fleet.run("true", timeout=60).ok
        assert len(ways.alive) == 3
    assert comes_true(lambda: not ways.alive, 2)


def test_the_programs_end_when_we_are_killed(ways: Ways, tmp_path: Path) -> None:
    program = """
import pickle, sys, threading
from orchestrator.remote.fleet import Fleet
hosts = pickle.load(open(sys.argv[1], "rb"))
fleet = Fleet(hosts, deadline=20)
assert fleet.reachable(timeout=20).ok
print("connected", flush=True)
threading.Event().wait()
"""
    import pickle

    (tmp_path / "hosts").write_bytes(pickle.dumps(ways.hosts[:2]))
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "hosts")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"connected\n"
    assert len(ways.alive) == 2
    child.kill()
    child.wait(10)
    child.stdout.close()
    assert comes_true(lambda: not ways.alive)


def test_a_program_that_breaks_midway_loses_the_command_and_does_not_repeat_it(ways: Ways, tmp_path: Path) -> None:
    count = tmp_path / "count"
    with Fleet(ways.hosts[:2], deadline=10) as fleet:
        assert fleet.reachable(timeout=20).ok
        for pid in ways.alive:
            threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        result = fleet.run(f"echo once >> {count}; sleep 30", timeout=60)
        assert {host.outcome.failure for host in result.hosts} == {Failure.LOST}
        assert all("was ended by signal 9" in host.outcome.detail for host in result.hosts), result.failed
        assert count.read_text().count("once") == 2
        assert fleet.run("true", timeout=60).ok  # a new program for the next command


def test_the_programs_message_at_a_break_is_reported(ways: Ways, tmp_path: Path) -> None:
    with sshd_farm(tmp_path / "harmed", 1) as farm:
        host = replace(farm.addresses[0], proxy=ways.hosts[0].proxy)
        with Fleet([host], deadline=10) as fleet:
            assert fleet.reachable(timeout=20).ok
            threading.Timer(0.4, farm.hosts[0].kill).start()
            (result,) = fleet.run("sleep 30", timeout=60).hosts
    assert result.outcome.failure is Failure.LOST
    assert result.outcome.detail.endswith("ended with status 4: ERROR: (relay) the far end has gone")


def test_a_program_that_hangs_is_frozen(ways: Ways) -> None:
    with Fleet(ways.hosts[:1], deadline=2) as fleet:
        assert fleet.reachable(timeout=20).ok
        (pid,) = ways.alive
        threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP)).start()
        (result,) = fleet.run("sleep 30", timeout=60).hosts
        assert result.outcome.failure is Failure.FROZEN
        assert result.outcome.seconds < 6
    assert not is_alive(pid)


def test_the_message_of_a_program_that_ends_immediately_is_reported(ways: Ways) -> None:
    unreachable = replace(ways.hosts[0], host="127.0.0.1", port=1)
    with Fleet([unreachable, *ways.hosts[1:2]], deadline=3) as fleet:
        first, second = fleet.run("true", timeout=60).hosts
    assert first.outcome.failure is Failure.UNREACHABLE
    assert "ended with status 3: ERROR: (relay) cannot connect: " in first.outcome.detail
    assert first.outcome.attempts > 1
    assert second.outcome.ok


def test_a_program_that_brings_nothing_is_unreachable_and_ended(ways: Ways) -> None:
    words = ("bash", "-c", 'echo > "$0"/$$; echo waiting for it >&2; sleep 60', ways.notes)
    with Fleet([replace(ways.hosts[0], proxy=words)], deadline=1) as fleet:
        (result,) = fleet.run("true", timeout=60).hosts
    assert result.outcome.failure is Failure.UNREACHABLE
    assert "bash delivered nothing from" in result.outcome.detail
    assert "waiting for it" in result.outcome.detail
    assert ways.pids
    assert not ways.alive


def test_a_program_that_ends_after_the_host_has_spoken_has_lost_it(ways: Ways) -> None:
    """Something answered over there: it is not out of reach."""
    words = ("bash", "-c", "echo SSH-2.0-there; sleep 0.2; echo broken >&2; exit 5")
    host = replace(ways.hosts[0], proxy=words)
    with pytest.raises(HostFailure) as caught:
        Link(host, KeyRing().identities(host), fabric_config()).transport(5)
    assert caught.value.failure is Failure.LOST
    assert caught.value.retry


def test_our_own_end_is_not_reported_as_the_programs(ways: Ways) -> None:
    sock = start_proxy(replace(ways.hosts[0], proxy=("bash", "-c", "echo a word >&2; sleep 60")))
    sock.shutdown(socket.SHUT_RDWR)
    assert sock.recv(10) == b""
    assert sock.end_reason() == ""
    sock.close()
    assert sock.end_reason() == ""


def test_a_program_that_is_not_there_is_named_and_not_tried_again(ways: Ways) -> None:
    with Fleet([replace(ways.hosts[0], proxy=("no-such-gcloud", "%h"))], deadline=5) as fleet:
        (result,) = fleet.run("true", timeout=60).hosts
    assert result.outcome.failure is Failure.UNREACHABLE
    assert "no-such-gcloud, which leads to " in result.outcome.detail
    assert result.outcome.attempts == 1


def test_a_host_behind_it_that_shows_another_key_is_refused(ways: Ways, tmp_path: Path) -> None:
    with sshd_farm(tmp_path / "harmed", 1) as farm:
        farm.hosts[0].change_host_key()
        with Fleet([replace(farm.addresses[0], proxy=ways.hosts[0].proxy)], deadline=10) as fleet:
            (result,) = fleet.run("true", timeout=60).hosts
    assert result.outcome.failure is Failure.IDENTITY


def test_the_pasteable_ssh_command_takes_the_same_way(ways: Ways) -> None:
    assert shutil.which("ssh")
    host = replace(ways.hosts[1], proxy=(*ways.hosts[1].proxy, "a 'word' with $HOME and 100%%"))
    done = subprocess.run(
        [*ssh_argv(host, "echo", "$ORCH_TEST_HOST")], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == ways.farm.hosts[1].mark, done.stderr
    assert len(ways.pids) == 1


def test_ssh_reaches_a_host_through_two_jump_hosts(four: Farm, tmp_path: Path) -> None:
    """The middle host is asked for the last one, the outer for the middle: each ssh reads its own tokens."""
    last, middle, outer = four.addresses[:3]
    odd = tmp_path / "a key of 100%h"
    shutil.copy(four.identity, odd)
    odd.chmod(0o600)
    chain = replace(last, jump=replace(middle, identity_file=odd, jump=replace(outer, identity_file=odd)))
    done = subprocess.run(
        ssh_argv(chain, "echo", "$ORCH_TEST_HOST"), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == four.hosts[0].mark, done.stderr


def test_a_jump_host_may_be_behind_a_program(ways: Ways) -> None:
    behind = replace(ways.farm.addresses[2], jump=ways.hosts[0])
    with Fleet([behind], deadline=20) as fleet:
        (result,) = fleet.run("echo $ORCH_TEST_HOST", timeout=60).hosts
    assert result.output.decode().strip() == ways.farm.hosts[2].mark
    done = subprocess.run(
        ssh_argv(behind, "echo", "$ORCH_TEST_HOST"), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == ways.farm.hosts[2].mark, done.stderr


def address(**changes: object) -> HostAddress:
    nowhere = Path("/nowhere")
    fields: dict[str, object] = {"proxy": ("p",)} | changes
    return replace(
        HostAddress(
            rank=0,
            alias="a",
            host="10.0.0.1",
            port=22,
            user="me",
            identity_file=nowhere,
            known_hosts=nowhere,
            internal_ip="10.0.0.1",
        ),
        **fields,
    )  # type: ignore[arg-type]  # fields by name


def test_tokens_are_those_of_ssh() -> None:
    words = ("%h:%p", "-l%r", "100%%", "%%h")
    assert proxy_argv(address(proxy=words)) == ["10.0.0.1:22", "-lme", "100%", "%h"]
    for wrong in ("%n", "50%", "%\n"):
        with pytest.raises(ValueError, match="not known in a proxy command"):
            proxy_argv(address(proxy=("p", wrong)))


def test_a_host_has_a_program_or_a_jump_host_and_not_both() -> None:
    with pytest.raises(ValueError, match="both a proxy command and a jump host"):
        address(jump=address(proxy=()))
