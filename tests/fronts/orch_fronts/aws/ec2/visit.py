"""One request at the open cloud, and what EC2 keeps beside it: groups, addresses, tags, blocks.

All of it is in the cloud's own state, as plain JSON values, so that a later process finds it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from orch_fronts.aws.ec2.words import dry_run, wrong_value
from orch_fronts.aws.tables import zones_by_region
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError, Code, ReadOnlyViolation
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import ANY

_KEPT = "ec2 "
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """params: by their names in the service model."""

    cloud: SimulatedCloud
    bodies: Bodies
    region: str
    operation: str
    params: Mapping[str, Any]

    @property
    def now(self) -> float:
        return self.cloud.state.now

    @property
    def account(self) -> str:
        return self.cloud.scenario.account

    def kept(self, kind: str) -> dict[str, Any]:
        """What EC2 keeps of this kind, by id."""
        return kept(self.cloud, kind)

    def here(self, kind: str) -> dict[str, Any]:
        """What is kept of this kind in the region that was asked."""
        return {name: one for name, one in self.kept(kind).items() if one["region"] == self.region}

    def number(self) -> int:
        numbers = self.kept("numbers")
        numbers["last"] = int(numbers.get("last", 0)) + 1
        return int(numbers["last"])

    def new_id(self, prefix: str) -> str:
        return made_id(prefix, self.region, str(self.number()))

    def ask(self, subject: str = "") -> None:
        """A call that reads: faults befall it under its name in kebab case. Raises ApiError."""
        self.cloud.ask(kebab(self.operation), subject)

    def changing(self, subject: str, work: Callable[[], _Result]) -> _Result:
        """Do a change of what only EC2 keeps. Raises ApiError, AwsRefusal for a dry run.

        A call without an answer has acted: that is the harder case for a client.
        """
        if self.params.get("DryRun"):
            raise dry_run()
        if self.cloud.scenario.read_only:
            raise ReadOnlyViolation(f"{self.operation} {subject}: nothing may change in this cloud")
        try:
            self.cloud.ask(kebab(self.operation), subject)
        except ApiError as error:
            if error.code is Code.TIMEOUT:
                work()
            raise
        return work()

    def zones(self) -> tuple[str, ...]:
        """Of the region: those that the scenario names, else the table's. Raises AwsRefusal for no region."""
        found = zones_of(self.cloud, self.region)
        if not found:
            raise wrong_value(f"There is no region {self.region}")
        return found

    def arn(self, kind: str, name: str) -> str:
        return f"arn:aws:ec2:{self.region}:{self.account}:{kind}/{name}"


def kept(cloud: SimulatedCloud, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = cloud.state.front.setdefault(_KEPT + kind, {})
    return found


def left(cloud: SimulatedCloud) -> list[str]:
    """All that EC2 keeps and a client would have to delete, as `kind/name`: for the oracles of tests."""
    found = [f"groups/{one['name']}" for one in kept(cloud, "groups").values()]
    found += [f"placement/{one['name']}" for one in kept(cloud, "placement").values()]
    return found + [f"addresses/{name}" for name in kept(cloud, "addresses")]


def zones_of(cloud: SimulatedCloud, region: str) -> tuple[str, ...]:
    named = tuple(zone.name for zone in cloud.scenario.zones if zone.region == region and zone.name != ANY)
    if named:
        return named
    return zones_by_region().get(region, ()) if any(zone.name == ANY for zone in cloud.scenario.zones) else ()


def region_of(cloud: SimulatedCloud, zone: str) -> str:
    """us-east-1a -> us-east-1, unless the scenario says otherwise."""
    for known in cloud.scenario.zones:
        if known.name == zone:
            return known.region
    return zone[:-1]


def made_id(prefix: str, *parts: str) -> str:
    """The same for the same parts; 17 hexadecimal digits, as ids have since 2016."""
    return f"{prefix}-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:17]}"


def kebab(operation: str) -> str:
    """RunInstances -> run-instances."""
    return _CAPITAL.sub("-", operation).lower()
