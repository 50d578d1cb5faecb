"""Ctrl-C: a request that would be unwatched is cancelled, and a slice that may run a program is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.simulated import SimHome, sim_launch, sim_task, use_home
from support.slice_names import short_names

from orchestrator.engine.loop import drive as drive_module
from orchestrator.engine.loop.drive import Detached
from orchestrator.engine.state.recorded import open_reader
from orchestrator.plan.observed import Observed
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Happening, Scenario
from orchestrator.slices import SliceState


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def interrupted(
    monkeypatch: pytest.MonkeyPatch, when: Callable[[Observed], bool], **fields: object
) -> tuple[SimHome, BaseException]:
    """Launch with Ctrl-C at the first observation for which `when` is true, and return how it ended."""
    durations = Durations(create=40.0, end=2.0, detect=5.0, contact=0.01, jitter=0.0)
    home = SimHome(InMemory(Scenario(**{"durations": durations, **fields}), ManualClock()))  # type: ignore[arg-type]  # by name
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=None))
    look, pressed = drive_module.observe, [False]

    def observe(session: object) -> Observed:
        found = look(session)  # type: ignore[arg-type]  # the engine's own
        if not pressed[0] and when(found):
            pressed[0] = True
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(drive_module, "observe", observe)
    with pytest.raises((Detached, KeyboardInterrupt)) as caught:
        home.drive(sim_launch(sim_task()))
    return home, caught.value


def alive(home: SimHome) -> list[str]:
    with home.access.open() as cloud:
        return short_names(look.name for look in cloud.live())


def test_a_slice_still_being_created_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    home, error = interrupted(monkeypatch, lambda seen: seen.slice_state is SliceState.CREATING)
    assert isinstance(error, Detached) and "cancelled" in error.what
    assert alive(home) == []
    with open_reader() as reader:
        assert reader.cluster("c") is None


def test_a_slice_that_was_preempted_is_ended_and_no_other_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = (Happening(do=Deed.PREEMPT, after_ready=60.0),)
    home, error = interrupted(monkeypatch, lambda seen: seen.slice_state is SliceState.PREEMPTED, happenings=lost)
    assert isinstance(error, Detached) and "continues to run" not in error.what
    assert alive(home) == []


def test_a_running_program_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    home, error = interrupted(monkeypatch, lambda seen: seen.started)
    assert isinstance(error, Detached) and "continues to run" in error.what
    assert alive(home) == ["c-1"]


def test_a_slice_in_unclear_state_may_run_a_program_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = (Fault(call="get", kind=FaultKind.UNAVAILABLE, rate=1.0, begin=100.0),)
    home, error = interrupted(
        monkeypatch, lambda seen: seen.started and seen.slice_state is SliceState.UNCLEAR, faults=blind
    )
    assert isinstance(error, Detached) and "continues to run" in error.what
    assert alive(home) == ["c-1"]
