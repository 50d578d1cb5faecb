"""What we know of each slice on Compute Engine: where it is, what it consists of, whose it is. One small file each.

Written before the first request is sent, so that a slice is found again after a crash at any point without a search. It
holds paths of private keys, never a key. Google remains the truth about what exists.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.providers.google.compute.parts import Part, parts
from orchestrator.providers.google.record import KEPT_SECONDS, Phase
from orchestrator.providers.records import RecordFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """market: "spot", "flex" or "". operations: paths of those that make machines. seen: when it was READY first, 0 =
    never. order: for each rank its host's place among the names. ports: of SSH by place, () for Google's own hosts.
    checked: the hosts were seen to have our keys. asked, changed: seconds since the epoch.
    """

    name: str
    token: str
    project: str
    zone: str
    slices: int
    hosts_per_slice: int
    market: str
    internal_ips: bool
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    wait_seconds: int = 0
    phase: Phase = Phase.ASKED
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
    def machines(self) -> tuple[str, ...]:
        return tuple(self.machine(part) for part in self.parts)

    @property
    def rest(self) -> tuple[str, ...]:
        """Paths of templates and policies, in the order in which they can be deleted."""
        grouped = [part.name for part in self.parts if part.grouped]
        templates = [f"projects/{self.project}/global/instanceTemplates/{name}" for name in grouped]
        policies = [f"projects/{self.project}/regions/{self.region}/resourcePolicies/{name}" for name in grouped]
        return (*templates, *policies)


class Records(RecordFiles[Record]):
    """The files below <state>/google-compute."""

    every = "the records of Compute Engine"

    @staticmethod
    def parsed(fields: dict[str, Any]) -> Record:
        fields |= {key: tuple(fields[key]) for key in ("host_public", "operations", "order", "ports")}
        fields["phase"] = Phase(fields["phase"])
        return Record(**fields)

    def write(self, record: Record, phase: Phase | None = None, **changes: Any) -> Record:
        """The record as it was written. changes: of other fields."""
        fields: Mapping[str, Any] = {"phase": phase or record.phase, "changed": time.time(), **changes}
        return self.put(replace(record, **fields))

    def projects(self) -> set[str]:
        """In which something may live that was asked for here."""
        return {record.project for record in self.all() if record.phase is not Phase.REFUSED}

    def sweep(self) -> None:
        """Drop what ended, or was refused, long ago."""
        for record in self.all():
            if record.phase in (Phase.ENDING, Phase.REFUSED) and time.time() - record.changed > KEPT_SECONDS:
                self.drop(record.name)
