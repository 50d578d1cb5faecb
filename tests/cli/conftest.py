"""The command line as a person meets it: in this process for speed, as a separate process where that matters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.__main__ import main
from orchestrator.hosts import HostAddress
from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store


@dataclass(frozen=True)
class CommandResult:
    """What one command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a separate, empty orch."""
    for name in list(os.environ):
        if name.startswith(("ORCH_", "NO_COLOR", "FORCE_COLOR", "CI", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    return tmp_path / "orch"


@pytest.fixture
def orch(home: Path) -> Callable[..., CommandResult]:
    """Run one command line in this process."""

    def run(*words: str) -> CommandResult:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # BytesIO
        return CommandResult(status, *texts)

    return run


@pytest.fixture
def orch_process(home: Path) -> Callable[..., CommandResult]:
    """Run one command line as a process, with `env` laid over this one's."""

    def run(*words: str, env: dict[str, str] | None = None, timeout: float = 60.0) -> CommandResult:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run


def address(rank: int, folder: Path) -> HostAddress:
    return HostAddress(
        rank=rank,
        alias=f"mine-1.{rank}",
        host=f"127.0.0.{rank + 10}",
        port=2200 + rank,
        user="me",
        identity_file=folder / "id",
        known_hosts=folder / "known_hosts",
        internal_ip=f"10.0.0.{rank + 2}",
        host_key="ssh-ed25519 AAAA",
    )


@pytest.fixture
def filled(home: Path) -> Path:
    """A store with cluster 'mine' (2 hosts, ready, job 1 ended badly, job 2 runs) and 'other', which is gone."""
    candidate = Candidate(
        provider="local",
        accelerator="cpu",
        hosts=2,
        chips_per_host=0,
        market=OnDemand(),
        price_per_hour=0.0,
        price_note="your own computer",
    )
    with Store(home / "state" / "orch.db") as store:
        mine = store.open_cluster("mine", "cpu on local")
        lease = store.acquire("cluster:mine", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, mine, 1, "mine-1", candidate, "token-1", "{}")
        store.update_intent(lease, mine, "mine-1", IntentState.ACCEPTED)
        store.update_intent(lease, mine, "mine-1", IntentState.DELETED, EndCause.PREEMPTED, "taken back")
        store.write_intent(lease, mine, 2, "mine-2", candidate, "token-2", "{}")
        store.update_intent(lease, mine, "mine-2", IntentState.ACCEPTED)
        store.note_hosts(lease, mine, (address(0, home), address(1, home)))
        store.note_state(mine, "ready")
        first = store.open_job(
            mine,
            NewJob(
                kind="launch",
                run_id="run-a",
                digest="d1",
                task="",
                bucket="file:///tmp/b",
                ranks=None,
                after_end=TeardownPolicy.KEEP,
            ),
        )
        store.record_outcome(
            mine,
            first.id,
            Outcome(
                status=3,
                code="program-failed",
                what="program failed on worker1",
                why="boom",
                next_step=NextStep(words="look"),
            ),
        )
        second = store.open_job(
            mine,
            NewJob(
                kind="exec", run_id="run-b", digest="d2", task="", bucket="", ranks=(0,), after_end=TeardownPolicy.KEEP
            ),
        )
        store.start_attempt(mine, second.id)
        store.release(lease)
        other = store.open_cluster("other", "v5e on gcp")
        held = store.acquire("cluster:other", "test")
        assert isinstance(held, Lease)
        store.close_cluster(held, other)
        store.release(held)
    return home
