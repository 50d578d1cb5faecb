"""Capacity blocks in the real engine: they begin late, and their machines are taken back at an announced time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.driving import Listener
from support.simulated import PointedProvider, Points, SimHome, sim_candidate, sim_launch, sim_task, use_home

from orchestrator.engine.loop import drive as drive_module
from orchestrator.engine.loop.drive import Detached, drive_cluster
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.services import Services
from orchestrator.exits import Exit
from orchestrator.plan.desired import Limits, Run
from orchestrator.plan.observed import Observed
from orchestrator.simulator.access import Access, InMemory
from orchestrator.simulator.clock import START, ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Durations, Held, Scenario
from orchestrator.slices import CapacityBlock, SliceState, SliceView

BEGINS, ENDS = START + 600.0, START + 600.0 + 4200.0
BLOCK = sim_candidate(market=CapacityBlock("cr-1"))


class BlockProvider(PointedProvider):
    """The simulated provider with the times of a block: no machines before it begins, taken back when it ends."""

    def __init__(self, access: Access, points: Points) -> None:
        super().__init__(access, points)
        self.clock = access.clock

    def observe(self, name: str, token: str = "") -> SliceView:
        if self.clock.now() >= ENDS:
            self.end(name)
        view = super().observe(name)
        if view.state is SliceState.READY and self.clock.now() < BEGINS:
            view = SliceView(state=SliceState.CREATING)
        return replace(view, until=BEGINS, ends=ENDS)


class BlockHome(SimHome):
    def provider(self) -> BlockProvider:
        return BlockProvider(self.access, self.points)

    def launch(self, listener: Listener, **changes: object) -> CommandResult:
        ready = sim_launch(sim_task(), BLOCK)
        assert isinstance(ready.desired, Run)
        ready = replace(ready, desired=replace(ready.desired, **changes))  # type: ignore[arg-type]  # by name
        provider = self.provider()
        return drive_cluster(
            ready,
            listener,
            services=Services(
                provider=lambda _: provider, host_operations=self.hands, clock=self.clock, follows_logs=False
            ),
        )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlockHome:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    durations = Durations(create=0.4, end=0.3, contact=0.01, jitter=0.0)
    held = (Held(name="cr-1", zone="sim-a", accelerator="v5e", amount=64),)
    made = BlockHome(InMemory(Scenario(durations=durations, reservations=held), ManualClock()))
    with made.access.open() as cloud:
        cloud.set_program("*", Program(seconds=None))
    return made


def test_a_program_on_a_block_is_stopped_in_time_and_its_end_is_announced_once(home: BlockHome) -> None:
    listener = Listener()
    ending = home.launch(listener, limits=Limits(hours=1.1))  # 66 min: less than the wait and the program's time
    assert ending.step.status == Exit.TIMEOUT
    assert "the capacity block is over at" in ending.step.what  # type: ignore[union-attr]  # a GiveUp
    assert listener.steps[-5:] == ["EndAttempt", "StopJob", "Conclude", "EndSlice", "ForgetSlice"]
    reported = [note for note in listener.notes if "taken back" in note]
    assert len(reported) == 1 and "in 60 min" in reported[0]
    stopped = home.clock.now()
    assert ENDS - 600.0 <= stopped < ENDS - 500.0


def test_the_time_before_a_block_begins_counts_for_no_limit(home: BlockHome) -> None:
    ending = home.launch(Listener(), limits=Limits(hours=0.05))  # three minutes, after ten of waiting
    assert "limit of 0.05 hours reached" in ending.step.what  # type: ignore[union-attr]  # a GiveUp
    assert home.clock.now() >= BEGINS + 180.0


def test_ctrl_c_before_a_block_begins_cancels_the_request_and_reports_that_the_block_stays(
    home: BlockHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, pressed = drive_module.observe, [False]

    def observe(session: object) -> Observed:
        found = look(session)  # type: ignore[arg-type]  # the engine's own
        if not pressed[0] and found.slice_state is SliceState.CREATING:
            pressed[0] = True
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(drive_module, "observe", observe)
    with pytest.raises(Detached, match="the capacity block cr-1 stays yours"):
        home.launch(Listener())
    with home.access.open() as cloud:
        assert not cloud.live()
