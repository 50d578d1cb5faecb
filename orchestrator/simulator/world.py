"""Shared core of the simulated cloud: its state, its scenario, its random numbers and its agenda."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush
from typing import Any

from orchestrator.simulator.chance import draw, spread
from orchestrator.simulator.scenario import Scenario
from orchestrator.simulator.state import CloudState, Due, Phase, Resource

MAX_SEED = (1 << 64) - 1


class World:
    """State and scenario of a cloud. It has no clock: `state.now` is the time.

    Build a new one with `World.create`, or wrap a stored state.
    """

    __slots__ = ("scenario", "state")

    def __init__(self, scenario: Scenario, state: CloudState) -> None:
        self.scenario = scenario
        self.state = state

    @classmethod
    def create(cls, scenario: Scenario, now: float) -> World:
        world = cls(scenario, CloudState(began=now, now=now, random=scenario.seed & MAX_SEED))
        for index, happening in enumerate(scenario.happenings):
            if happening.at is not None:
                world.due(happening.at, "happen", "", index)
        return world

    def chance(self) -> float:
        self.state.random, number = draw(self.state.random)
        return number

    def span(self, seconds: float) -> float:
        """Return a duration of the scenario with its jitter."""
        return spread(seconds, self.scenario.durations.jitter, self.chance())

    def number(self) -> int:
        self.state.numbers += 1
        return self.state.numbers

    def due(self, seconds: float, kind: str, subject: str, *detail: Any) -> None:
        """Add an entry to the agenda, `seconds` from now."""
        heappush(self.state.agenda, Due(self.state.now + seconds, self.number(), kind, subject, detail))

    def living(self) -> Iterator[Resource]:
        """Return the existing resources, in order of creation."""
        resources = self.state.resources
        return (resources[uid] for uid in self.state.names.values())

    def find(self, name: str, zone: str = "") -> Resource | None:
        """Find an existing resource; zone "" means any."""
        state = self.state
        if zone:
            uid = state.names.get(f"{zone}/{name}")
            return state.resources[uid] if uid is not None else None
        return next((resource for resource in self.living() if resource.name == name), None)


def host_alias(resource: Resource, rank: int) -> str:
    """Return the name under which a host's key is pinned; it is never reused."""
    return f"{resource.name}-{resource.uid}-{rank}".lower()


def is_absent(resource: Resource) -> bool:
    return resource.phase is Phase.ABSENT
