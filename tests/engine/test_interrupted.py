"""Ctrl-C: what nobody watches is given back while it holds nothing, and left alone when it may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.simulated import SimHome, sim_launch, sim_task, use_home

from orchestrator.engine import drive as drive_module
from orchestrator.engine.drive import Detached
from orchestrator.engine.known import open_reader
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
    """A launch that gets Ctrl-C at the first look of which `when` is true, and what it ended with."""
    durations = Durations(create=40.0, end=2.0, detect=5.0, contact=0.01, jitter=0.0)
    home = SimHome(InMemory(Scenario(**{"durations": durations, **fields}), ManualClock()))  # type: ignore[arg-type]
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
        return [look.name for look in cloud.live()]


def test_a_slice_that_is_still_being_made_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    home, error = interrupted(monkeypatch, lambda seen: seen.slice_state is SliceState.CREATING)
    assert isinstance(error, Detached) and "cancelled" in error.what
    assert alive(home) == []
    with open_reader() as reader:
        assert reader.cluster("c") is None


def test_a_slice_that_was_preempted_is_ended_and_no_other_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = (Happening(Deed.PREEMPT, after_ready=60.0),)
    home, error = interrupted(monkeypatch, lambda seen: seen.slice_state is SliceState.PREEMPTED, happenings=lost)
    assert isinstance(error, Detached) and "goes on" not in error.what
    assert alive(home) == []


def test_a_program_that_runs_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    home, error = interrupted(monkeypatch, lambda seen: seen.started)
    assert isinstance(error, Detached) and "goes on" in error.what
    assert alive(home) == ["c-1"]


def test_what_cannot_be_seen_may_hold_a_program_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = (Fault("get", FaultKind.UNAVAILABLE, rate=1.0, begin=100.0),)
    home, error = interrupted(
        monkeypatch, lambda seen: seen.started and seen.slice_state is SliceState.UNCLEAR, faults=blind
    )
    assert isinstance(error, Detached) and "goes on" in error.what
    assert alive(home) == ["c-1"]
