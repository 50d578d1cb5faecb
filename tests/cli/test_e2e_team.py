"""A store on PostgreSQL that several engines share: one drives a job at a time, another takes over from it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG = """
name: mine
resources: {infra: "local:2"}
run: |
  echo "attempt $ORCH_ATTEMPT rank $ORCH_RANK" >> "$MARKS"
  for i in $(seq 600); do [ -e "$GO" ] && exit 0; sleep 0.2; done
  exit 9
"""
LEASE = 30.0  # seconds: orchestrator.store.leases.LEASE_SECONDS

# An engine as it runs on each computer of a team. `orch serve` itself allows one on a computer.
ENGINE = """
from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.engine.unattended.engine import UnattendedEngine
from orchestrator.engine.services import real_services
from orchestrator.paths import load_paths
UnattendedEngine(where=load_paths(), services=real_services(load_paths()), narrators=EngineLog).run(until_idle=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def orch(tmp_path: Path, server: PostgresServer) -> Iterator[Orch]:
    (tmp_path / "long.yaml").write_text(LONG)
    names = {"MARKS": str(tmp_path / "marks"), "GO": str(tmp_path / "go")}
    orch = Orch(tmp_path, {**names, "ORCH_STORE": server.new_store()})
    yield orch
    (tmp_path / "go").write_text("")
    orch("down", "mine")
    until("no engine is left", lambda: not orch.engines(), 40)


@pytest.fixture
def engines(orch: Orch) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start_engine(orch: Orch, engines: list[subprocess.Popen[bytes]]) -> None:
    with (orch.folder / "engines.log").open("ab") as log:
        engines.append(subprocess.Popen([sys.executable, "-c", ENGINE], env=orch.env, cwd="/", stderr=log))


def job(orch: Orch, number: int = 1) -> dict[str, Any]:
    jobs = json.loads(orch.ok("queue", "mine", "--all", "-o", "json"))["jobs"]
    found: dict[str, Any] = next(one for one in jobs if one["id"] == number)
    return found


def driver(orch: Orch) -> int:
    """The process that holds the job's watch lease; 0 when no process does."""
    found = re.search(r"process (\d+) on", job(orch)["driven_by"] or "")
    return int(found[1]) if found else 0


def marks(orch: Orch) -> list[str]:
    path = orch.folder / "marks"
    return sorted(path.read_text().split("\n")[:-1]) if path.exists() else []


def both(*attempts: int) -> list[str]:
    return [f"attempt {attempt} rank {rank}" for attempt in attempts for rank in (0, 1)]


def begin(orch: Orch, engines: list[subprocess.Popen[bytes]]) -> None:
    """A job that runs, left to two of our engines."""
    orch.ok("launch", "long.yaml", "--detach", "--env", "MARKS", "--env", "GO")
    until("its own engine is there", lambda: len(orch.engines()) == 1)
    os.kill(orch.engines()[0], signal.SIGKILL)
    until("both ranks run", lambda: marks(orch) == both(1))
    for _ in range(2):
        start_engine(orch, engines)
    until("one engine drives it", lambda: driver(orch) in [engine.pid for engine in engines])


@pytest.mark.promise("P7")
@pytest.mark.promise("P29")
def test_one_engine_drives_a_job_and_the_other_takes_over_when_it_is_killed(
    orch: Orch, engines: list[subprocess.Popen[bytes]]
) -> None:
    begin(orch, engines)
    orch.ok("local", "preempt", "mine", "1")
    until("a second attempt runs", lambda: marks(orch) == both(1, 2))
    first = driver(orch)
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    until("the other drives it", lambda: driver(orch) not in (0, first), LEASE + 10)
    assert time.monotonic() - began < LEASE + 10
    orch.ok("local", "preempt", "mine", "0")
    until("a third attempt runs", lambda: marks(orch) == both(1, 2, 3))
    (orch.folder / "go").write_text("")
    until("it succeeds", lambda: job(orch)["status"] == 0)
    assert marks(orch) == both(1, 2, 3), "an attempt was started twice"


@pytest.mark.promise("P7")
@pytest.mark.promise("P29")
def test_an_engine_that_slept_does_no_harm_when_it_wakes_up(orch: Orch, engines: list[subprocess.Popen[bytes]]) -> None:
    begin(orch, engines)
    first = driver(orch)
    os.kill(first, signal.SIGSTOP)
    try:
        until("the other drives it", lambda: driver(orch) not in (0, first), LEASE + 15)
        orch.ok("local", "preempt", "mine", "1")
        until("a second attempt runs", lambda: marks(orch) == both(1, 2))
    finally:
        os.kill(first, signal.SIGCONT)
    time.sleep(3)  # it looks about
    assert marks(orch) == both(1, 2)
    orch.ok("local", "preempt", "mine", "0")
    until("a third attempt runs", lambda: marks(orch) == both(1, 2, 3))
    (orch.folder / "go").write_text("")
    until("it succeeds", lambda: job(orch)["status"] == 0)
    assert marks(orch) == both(1, 2, 3), "an attempt was started twice"
    assert orch.ok("events", "mine").count("job 1 ended:") == 1


@pytest.mark.promise("P29")
def test_every_command_works_on_a_shared_store_and_never_shows_its_password(orch: Orch, server: PostgresServer) -> None:
    said: list[str] = []

    def ok(*words: str) -> str:
        done = orch(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        said.append(done.stdout + done.stderr)
        return done.stdout

    given = ("--env", "MARKS", "--env", "GO")
    ok("launch", "long.yaml", "--detach", *given)
    (orch.folder / "next.yaml").write_text("name: mine\nresources: {infra: 'local:2'}\nrun: echo next\n")
    ok("launch", "next.yaml", "--detach")
    assert [one["state"] for one in json.loads(ok("queue", "-o", "json"))["jobs"]] == ["running", "queued"]
    assert ok("exec", "mine", "--", "echo", "beside").count("beside") == 2
    ok("cancel", "mine")
    until("the queued job has run", lambda: job(orch, 2)["status"] == 0)
    assert "next" in ok("logs", "mine", "2")
    ok("stop", "mine")
    ok("start", "mine")
    for words in (("status",), ("status", "mine"), ("events", "mine"), ("reap", "--dry-run"), ("plan", "next.yaml")):
        ok(*words)
    ok("down", "mine")
    assert json.loads(ok("status", "-o", "json"))["clusters"] == []
    assert not (orch.state / "orch.db").exists(), "a second store was made beside the shared one"
    assert server.url().split("@")[0].rpartition(":")[2] not in "".join(said)


def test_a_store_that_cannot_be_reached_is_reported_in_few_lines(orch: Orch) -> None:
    away = Orch(orch.folder, {"ORCH_STORE": "postgresql://me:hidden-word@127.0.0.1:1/none"})
    for words in (
        ("status",),
        ("queue",),
        ("launch", "long.yaml", "--env", "MARKS=a", "--env", "GO=b"),
        ("down", "mine"),
    ):
        done = away(*words)
        assert done.returncode != 0
        assert "hidden-word" not in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 6, done.stderr
