"""A cluster that another process holds: `down` and `cancel` are on record, say so, and are carried out after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driving import Listener
from support.orch_process import Orch, until

from orch_fronts.aws.cloud import SimulatedAws
from orchestrator.engine.services import real_services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.paths import load_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
MACHINES = {
    "own computer": "{infra: local, accelerators: cpu}",
    "rented": '{accelerators: "H100:1", infra: aws/us-east-1}',
}


@pytest.fixture
def orch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Orch]:
    """An orch whose task is for the machines that the test names."""
    (tmp_path / "task.yaml").write_text(
        f"name: mine\nresources: {MACHINES[request.param]}\nrun: echo begun; sleep 600\n"
    )
    with contextlib.ExitStack() as stack:
        more: dict[str, str] = {}
        if request.param == "rented":
            (tmp_path / "cloud").mkdir()
            (tmp_path / "cloud" / "scenario.toml").write_text(SCENARIO)
            more = stack.enter_context(SimulatedAws(tmp_path / "cloud")).env
        orch = Orch(tmp_path, more)
        if more:
            orch.ok("config", "set", "aws.instance_profile", "orch-host")
        yield orch
        orch("down", "mine", "--yes", timeout=170)
        orch.kill_engines()


@contextlib.contextmanager
def held(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold the lease of the cluster, as a command does whose host floods."""
    monkeypatch.setenv("ORCH_HOME", str(orch.folder / "orch"))
    where = load_paths()
    with (
        open_store(where, real_services(where)) as store,
        LeaseKeeper(store, "mine", "launch", Listener()) as keeper,
    ):
        keeper.hold(60.0)
        yield


@pytest.mark.parametrize("orch", MACHINES, indirect=True)
def test_down_is_recorded_and_carried_out_later(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    orch.ok("launch", "task.yaml", "--yes", "--detach")
    with held(orch, monkeypatch):
        done = orch("down", "mine", "--yes")
        assert done.returncode == 6, done.stderr
        assert "error[recorded]: the teardown of 'mine' is recorded, and not carried out yet" in done.stderr
        assert (
            "(launch); an engine carries it out after that" in done.stderr and "wait for it, end it" not in done.stderr
        )
    until("the cluster is down", lambda: orch("status", "mine").returncode == 3, 90.0)


@pytest.mark.parametrize("orch", ["own computer"], indirect=True)
def test_cancel_is_recorded_and_carried_out_later(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    orch.ok("launch", "task.yaml", "--yes", "--detach")
    with held(orch, monkeypatch):
        done = orch("cancel", "mine", "--yes")
        assert done.returncode == 6, done.stderr
        assert "the cancel of job 1 of 'mine' is recorded, and not carried out yet" in done.stderr
    until("the job is cancelled", lambda: "exit 130" in orch.ok("queue", "mine", "--all"), 90.0)
