"""A launch that was killed while its machines were created: what takes it up, and what the commands say of it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.simulated import QUICK, Points, SimHome, sim_launch, sim_task, simulated, use_home

from orchestrator.__main__ import main
from orchestrator.cli.execution.act import PerformMode, carry_out
from orchestrator.engine import services as services_module
from orchestrator.engine.loop import drive as drive_module
from orchestrator.engine.loop.observe import observe
from orchestrator.engine.loop.session import Session
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations import sweep as sweep_module
from orchestrator.engine.preparation.commands import prepare_watch
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.recorded import open_reader
from orchestrator.exits import Exit
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Observed
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.registry import Rented
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.slices import SliceState
from orchestrator.task.model import Checkpoint, Task

SIMULATED = Rented(provider="simulated", included=True, why="used from here")


class Killed(BaseException):
    """The end of the process at a point."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def launch_and_kill(task: Task, after: TeardownPolicy) -> SimHome:
    """Launch, and die between the creation of the machines and its record."""

    def strike(name: str) -> None:
        if name == "after create":
            raise Killed

    home = SimHome(InMemory(Scenario(durations=QUICK), ManualClock()))
    home.points = Points(strike)
    home.points.here = strike  # at a name, not at a number
    with pytest.raises(Killed):
        home.drive(sim_launch(task, after=after))
    return replace(home, points=Points())


def task_with_bucket(folder: Path) -> Task:
    (folder / "b").mkdir()
    return sim_task(checkpoint=Checkpoint(bucket=f"file://{folder}/b"))


@pytest.mark.parametrize("requested", [TeardownPolicy.DOWN, TeardownPolicy.KEEP])
def test_a_resume_does_with_the_machines_what_the_launch_requested(tmp_path: Path, requested: TeardownPolicy) -> None:
    home = launch_and_kill(task_with_bucket(tmp_path), requested)
    ready = prepare_resume("c")
    assert isinstance(ready.desired, Run) and ready.desired.teardown is requested
    assert ready.job is not None and ready.job.after_end == requested
    home.drive(simulated(ready))
    with home.access.open() as cloud:
        assert bool(list(cloud.live())) is (requested is TeardownPolicy.KEEP)


@pytest.mark.parametrize(("option", "after"), [(None, "down"), ("--no-down", "keep"), ("--down", "down")])
def test_the_option_of_a_resume_wins_over_the_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str | None, after: str
) -> None:
    launch_and_kill(task_with_bucket(tmp_path), TeardownPolicy.DOWN)
    assert main(["resume", "c", "--dry-run", "-o", "json", *([option] if option else [])]) == 0
    assert json.loads(capsys.readouterr().out)["wanted"]["afterwards"] == after


def test_the_commands_name_what_continues_or_ends_machines_without_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = launch_and_kill(sim_task(), TeardownPolicy.DOWN)
    monkeypatch.setattr(services_module, "real_services", lambda *_a, **_k: home.services())
    monkeypatch.setattr(sweep_module, "find_rented_providers", lambda *_a: (SIMULATED,))
    for words, status in ((["status", "c"], 0), (["resume", "c"], Exit.USAGE), (["reap", "--yes"], 0)):
        assert main(words) == status
        shown = "".join(capsys.readouterr())
        assert "orch watch c 1" in shown and "orch down c" in shown, words
    home.drive(simulated(prepare_watch("c", None)))
    with home.access.open() as cloud, open_reader() as reader:
        assert not list(cloud.live()) and reader.cluster("c") is None


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_machines_are_created_cancels_them_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    home = SimHome(InMemory(Scenario(durations=replace(QUICK, create=40.0)), ManualClock()))
    drive, struck = drive_module.drive_cluster, list[bool]()

    def observe_and_strike(session: Session) -> Observed:
        found = observe(session)
        if found.slice_state is SliceState.CREATING and not struck:
            struck.append(True)
            signal.raise_signal(number)
        return found

    def drive_simulated(ready: PreparedCommand, narrator: Narrator, *, follow: bool) -> CommandResult:
        return drive(ready, narrator, follow=follow, services=home.services())

    monkeypatch.setattr(drive_module, "observe", observe_and_strike)
    monkeypatch.setattr(drive_module, "drive_cluster", drive_simulated)
    assert carry_out(sim_launch(sim_task()), PerformMode(consent=True)) == 128 + number
    assert "the request for machines was cancelled" in capsys.readouterr().err
    with home.access.open() as cloud:
        assert not list(cloud.live())
