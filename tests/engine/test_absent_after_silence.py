"""Machines that are absent when an engine looks again after hours: replaced only when it is known why, or harmless."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.simulated import Points, SimHome, sim_launch, sim_task, simulated, use_home
from support.slice_names import short_names, slice_name

from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.recorded import open_reader
from orchestrator.exits import Exit
from orchestrator.plan.steps import GiveUp
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Scenario
from orchestrator.store.records import JobRecord
from orchestrator.task.model import Checkpoint, Task

HOURS = 3 * 3600.0


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def running(task: Task) -> SimHome:
    """Return a home whose program runs, and whose engine is gone."""
    home = SimHome(InMemory(Scenario(durations=Durations(create=4.0, end=2.0, jitter=0.0)), ManualClock()))
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=60.0))
    home.drive(sim_launch(task), follow=False)
    return home


def jobs() -> tuple[JobRecord, ...]:
    with open_reader() as reader:
        cluster = reader.cluster("c") or reader.deleted_cluster("c")
        assert cluster is not None
        return reader.jobs(cluster)


def return_after(home: SimHome, seconds: float, deed: Deed) -> CommandResult:
    """Let something happen to the machines while no engine looks; then the engine is there again."""
    with home.access.open() as cloud:
        cloud.do(slice_name("c"), deed)
    home.pass_time(seconds)
    (job,) = jobs()
    return home.drive(simulated(commands.prepare_continuation("c", job)))


def alive(home: SimHome) -> list[str]:
    with home.access.open() as cloud:
        return short_names(look.name for look in cloud.live())


def test_machines_that_vanished_while_the_engine_slept_are_reported_and_not_replaced() -> None:
    home = running(sim_task())
    ending = return_after(home, HOURS, Deed.VANISH)
    assert isinstance(ending.step, GiveUp)
    assert (ending.step.status, ending.step.code) == (Exit.HOST_LOST, "host-lost")
    assert ending.step.what.startswith("job 1 ended: the machines of 'c' are absent, and orch looked at them last at ")
    assert "orch launch" in ending.step.next_step.words
    assert alive(home) == []
    assert [(job.state, job.status) for job in jobs()] == [("ended", Exit.HOST_LOST)]
    with open_reader() as reader:
        assert reader.cluster("c") is None, "its record is closed"
    assert home.drive(sim_launch(sim_task())).status == Exit.OK, "whoever launches again gets machines"


def test_a_preemption_that_the_provider_reports_is_recovered_from_after_any_time() -> None:
    home = running(sim_task())
    assert return_after(home, HOURS, Deed.PREEMPT).status == Exit.OK
    assert alive(home) == ["c-2"]


def test_machines_that_vanish_while_the_engine_looks_are_replaced() -> None:
    home = running(sim_task())
    assert return_after(home, 60.0, Deed.VANISH).status == Exit.OK
    assert alive(home) == ["c-2"]


class DuringSetup(Points):
    """The machines vanish a quarter of an hour after setup has begun on them."""

    def __init__(self, access: InMemory, kernel: KernelClock, *, asleep: bool) -> None:
        super().__init__()
        self._access, self._kernel, self._asleep = access, kernel, asleep

    def here(self, name: str) -> None:
        super().here(name)
        if name == "after start setup" and self.names.count(name) == 1:
            self._access.clock.sleep(900.0)
            self._kernel.slept = 900.0 * self._asleep
            with self._access.open() as cloud:
                cloud.do(slice_name("c"), Deed.VANISH)


class KernelClock:
    """The kernel's clocks of a computer that may have slept: CLOCK_BOOTTIME counts that, CLOCK_MONOTONIC does not."""

    def __init__(self) -> None:
        self.slept, self._read = 0.0, time.clock_gettime

    def __call__(self, clock: int) -> float:
        return self._read(clock) + (self.slept if clock == time.CLOCK_BOOTTIME else 0.0)


@pytest.mark.parametrize("asleep", [False, True])
def test_machines_that_vanish_during_a_long_setup_are_replaced_unless_the_computer_slept(
    monkeypatch: pytest.MonkeyPatch, asleep: bool
) -> None:
    kernel = KernelClock()
    monkeypatch.setattr(time, "clock_gettime", kernel)
    access = InMemory(Scenario(durations=Durations(create=4.0, end=2.0, jitter=0.0)), ManualClock())
    home = SimHome(access, DuringSetup(access, kernel, asleep=asleep))
    ending = home.drive(sim_launch(sim_task(setup="pip install -e .")))
    assert (ending.status, alive(home)) == ((Exit.HOST_LOST, []) if asleep else (Exit.OK, ["c-2"]))


def test_a_run_with_a_bucket_is_protected_by_its_epoch_and_continues(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    home = running(sim_task(checkpoint=Checkpoint(bucket=f"file://{tmp_path}/bucket")))
    assert return_after(home, HOURS, Deed.VANISH).status == Exit.OK
    assert alive(home) == ["c-2"]
