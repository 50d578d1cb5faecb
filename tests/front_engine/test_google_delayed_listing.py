"""A created node that is not listed yet is never taken for absent: its record would be closed, and it would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.front_home import make_slice_keys, owned_spec
from support.google_cloud import OTHER, ZONE, google_provider, tpu_candidate, tpu_zones

from orch_fronts.google.server import TpuServer
from orchestrator.errors import CloudError
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Scenario
from orchestrator.slices import SliceState

LAG = 20.0  # seconds for which a look may miss a new node; each look by chance


@dataclass
class Hidden:
    """A cloud that shows new nodes late, with the faults of the test."""

    access: InMemory
    clock: ManualClock
    provider: TpuProvider

    def states(self, seconds: int) -> set[SliceState]:
        """Observe once a second, and return the states."""
        found: set[SliceState] = set()
        for _ in range(seconds):
            found.add(self.provider.observe("c-1").state)
            self.clock.advance(1.0)
        return found

    @property
    def living(self) -> list[str]:
        return [look.name for look in self.access.cloud.live()]


@pytest.fixture
def hidden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hidden]:
    """param: the faults of the cloud."""
    clock = ManualClock()
    durations = Durations(create=40.0, end=5.0, jitter=0.0)
    scenario = Scenario(zones=tpu_zones(ZONE, OTHER), lag=LAG, durations=durations, faults=request.param)
    access = InMemory(scenario, clock)
    with TpuServer(access) as server:
        yield Hidden(access, clock, google_provider(server.url, tmp_path, clock.now))


def create(hidden: Hidden) -> None:
    spec = owned_spec("c-1", "token-1", tpu_candidate("v4-8"), cluster="c", installation="ours")
    hidden.provider.create(spec, make_slice_keys(1))


@pytest.mark.parametrize("hidden", [(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),)], indirect=True)
def test_a_node_seen_once_whose_answer_was_lost_stays_when_an_observation_misses_it(hidden: Hidden) -> None:
    for _ in range(20):  # as the engine does: until a look has shown that it is there
        try:
            create(hidden)
            break
        except CloudError:
            hidden.clock.advance(1.0)
    assert hidden.living == ["c-1"]
    assert SliceState.ABSENT not in hidden.states(30)


@pytest.mark.parametrize("hidden", [()], indirect=True)
def test_the_end_of_a_node_that_is_not_shown_yet_is_no_absence(hidden: Hidden) -> None:
    create(hidden)
    hidden.provider.end("c-1")
    assert hidden.living == ["c-1"], "the look before the end missed it, so that nothing was sent"
    assert SliceState.ABSENT not in hidden.states(10)
    hidden.clock.advance(LAG)
    hidden.provider.end("c-1")
    hidden.clock.advance(LAG + 5.0)
    assert hidden.states(1) == {SliceState.ABSENT}
    assert hidden.living == []
