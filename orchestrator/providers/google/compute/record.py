"""The record of a slice on Compute Engine, and the paths of what it consists of; see providers/core/record.py."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.providers.core.record import SliceRecord, SliceRecords
from orchestrator.providers.google.compute.parts import Part, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(SliceRecord):
    """A slice on Compute Engine.

    Attributes:
        market: "spot", "flex" or "".
        wait_seconds: How long it may wait for machines.
        operations: Paths of those that make machines, as far as their answers came.
        seen: Epoch seconds at which it was READY first; 0 for never.
        checked: Whether the hosts were seen to have our keys.
        order: For each rank its host's place among the names.
        ports: Of SSH by place; () for Google's own hosts.
    """

    project: str
    slices: int
    hosts_per_slice: int
    market: str
    internal_ips: bool
    wait_seconds: int = 0
    operations: tuple[str, ...] = ()
    seen: float = 0.0
    checked: bool = False
    order: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return parts(self.name, self.slices, self.hosts_per_slice)

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]

    def machine(self, part: Part) -> str:
        """Path of the instance or the group."""
        kind = "instanceGroupManagers" if part.grouped else "instances"
        return f"projects/{self.project}/zones/{self.zone}/{kind}/{part.name}"

    def instance(self, name: str) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{name}"

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the instances, slice by slice."""
        return tuple(name for part in self.parts for name in part.instances)

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self.machine(part) for part in self.parts)

    @property
    def rest(self) -> tuple[str, ...]:
        """Paths of templates and policies, in the order in which they can be deleted."""
        grouped = [part.name for part in self.parts if part.grouped]
        templates = [f"projects/{self.project}/global/instanceTemplates/{name}" for name in grouped]
        policies = [f"projects/{self.project}/regions/{self.region}/resourcePolicies/{name}" for name in grouped]
        return (*templates, *policies)


class Records(SliceRecords[Record]):
    """The files below <state>/google-compute."""

    every = "the records of Compute Engine"
    kind = Record
    tuples = ("host_public", "operations", "order", "ports")

    @staticmethod
    def place_of(record: Record) -> tuple[str, ...]:
        return (record.project, record.zone)
