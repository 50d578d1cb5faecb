"""The output of a job through two servers with one store: either answers, and a reader continues at the same byte."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server
from support.servers import make_servers_key, name_server
from support.service_site import log_in, serve

from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
COUNT = "i=0; until [ -e {gate} ]; do i=$((i+1)); echo line $i; sleep 0.05; done; printf end; exit 4"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def servers(tmp_path: Path, server: PostgresServer) -> tuple[Orch, Orch]:
    """The computers of two servers, with one store and one key."""
    names = name_server(server.new_store(), make_servers_key(tmp_path), "ops")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    return Orch(tmp_path / "first", names), Orch(tmp_path / "second", names)


def find_free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def read_lines(process: subprocess.Popen[str], first: int, count: int) -> int:
    """Read lines of a count from a number on, and return the number of the next."""
    assert process.stdout is not None
    for number in range(first, first + count):
        assert process.stdout.readline() == f"line {number}\n"
    return first + count


def test_another_server_goes_on_at_the_same_byte_when_the_one_that_drives_is_killed(
    servers: tuple[Orch, Orch], tmp_path: Path
) -> None:
    first, second = servers
    port, gate = find_free_port(), tmp_path / "gate"
    with serve(first, "--port", port, "--allow", "infra:local", page_only=False) as site:
        ada = log_in(site, tmp_path / "ada", site.port)
        ada.ok("launch", "--infra", "local:1", COUNT.format(gate=gate), "-c", "mine", "--yes", "--detach")
        process = ada.start("logs", "mine", "-f", "--no-prefix")
        at = read_lines(process, 1, 30)
        site.process.kill()
        site.process.wait(10)
    with serve(second, "--port", port):  # no engine: whatever it shows comes from the host
        at = read_lines(process, at, 60)
        said = ada("logs", "mine", "--no-prefix", "--tail", "3")
        assert said.returncode == 0 and len(said.stdout.splitlines()) == 3, said.stderr
        everything = ada.ok("logs", "mine", "--no-prefix").splitlines()
        assert everything == [f"line {number + 1}" for number in range(len(everything))] and len(everything) > at
    with serve(first, "--port", port, "--allow", "infra:local", page_only=False):
        read_lines(process, at, 30)
        gate.touch()
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.splitlines()[-1]) == (4, "end"), err
        assert "trying again" in err and "job 1 failed on head (rank 0): exit 4" in err
        ada.ok("down", "mine", "--yes")


def test_a_host_that_does_not_answer_is_named(servers: tuple[Orch, Orch], tmp_path: Path) -> None:
    first, second = servers
    with serve(first, "--allow", "infra:local", page_only=False) as site, serve(second) as other:
        ada = log_in(site, tmp_path / "ada", site.port)
        bob = log_in(other, tmp_path / "bob", other.port)
        ada.ok("launch", "--infra", "local:2", "echo $ORCH_RANK; sleep 300", "-c", "pair", "--yes", "--detach")
        until("both have printed", lambda: sorted(ada("logs", "pair", "--no-prefix").stdout.split()) == ["0", "1"])
        site.process.send_signal(signal.SIGSTOP)  # else its engine replaces the host
        try:
            first.ok("local", "preempt", "pair", "1")
            said = bob("logs", "pair", "--no-prefix")
            own = second("logs", "pair", "--no-prefix")  # which has no copies of an engine
        finally:
            site.process.send_signal(signal.SIGCONT)
        assert (said.returncode, said.stdout) == (Exit.HOST_LOST, "0\n"), said.stderr
        assert (said.returncode, said.stdout) == (own.returncode, own.stdout)
        assert "no log of job 1 on host 1" in said.stderr and "no log of job 1 on host 1" in own.stderr
        ada.ok("down", "pair", "--yes")
