"""What all parts of the cloud work on: its state, its scenario, its chance and its agenda."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush
from typing import Any

from orchestrator.simulator.chance import draw, spread
from orchestrator.simulator.scenario import Scenario
from orchestrator.simulator.state import CloudState, Due, Phase, Resource

MAX_SEED = (1 << 64) - 1


class World:
    """No clock: `state.now` is the time. Made new with `born`, or around a state that was kept."""

    __slots__ = ("scenario", "state")

    def __init__(self, scenario: Scenario, state: CloudState) -> None:
        self.scenario = scenario
        self.state = state

    @classmethod
    def born(cls, scenario: Scenario, now: float) -> World:
        world = cls(scenario, CloudState(began=now, now=now, random=scenario.seed & MAX_SEED))
        for index, happening in enumerate(scenario.happenings):
            if happening.at is not None:
                world.due(happening.at, "happen", "", index)
        return world

    def chance(self) -> float:
        self.state.random, number = draw(self.state.random)
        return number

    def span(self, seconds: float) -> float:
        """A duration of the scenario, with its jitter."""
        return spread(seconds, self.scenario.durations.jitter, self.chance())

    def number(self) -> int:
        self.state.numbers += 1
        return self.state.numbers

    def due(self, seconds: float, kind: str, subject: str, *detail: Any) -> None:
        """Put something on the agenda, `seconds` from now."""
        heappush(self.state.agenda, Due(self.state.now + seconds, self.number(), kind, subject, detail))

    def living(self) -> Iterator[Resource]:
        """All that is not absent, in the order of making."""
        resources = self.state.resources
        return (resources[uid] for uid in self.state.names.values())

    def find(self, name: str, zone: str = "") -> Resource | None:
        """A living resource. zone: "" = wherever it is."""
        state = self.state
        if zone:
            uid = state.names.get(f"{zone}/{name}")
            return state.resources[uid] if uid is not None else None
        return next((resource for resource in self.living() if resource.name == name), None)

    def of_alias(self, alias: str) -> tuple[Resource, int] | None:
        """The resource and the rank of a host's alias, living or not."""
        rest, _, rank = alias.rpartition("-")
        resource = self.state.resources.get(rest.rpartition("-")[2])
        return (resource, int(rank)) if resource is not None else None


def alias(resource: Resource, rank: int) -> str:
    """The name a host's key is pinned under: never used again."""
    return f"{resource.name}-{resource.uid}-{rank}".lower()


def is_gone(resource: Resource) -> bool:
    return resource.phase is Phase.ABSENT
