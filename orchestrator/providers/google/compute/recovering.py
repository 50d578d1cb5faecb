"""Taking over TPU machines of Compute Engine that have no record here; see ../recovering.py.

Only instances have labels: those of groups, templates and policies are in descriptions, which stay as they are. So the
labels of the instances decide whose a slice is. Each is changed on the condition that it has not changed since it was
read (compute v1, instances.setLabels, labelFingerprint).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.catalog.compute import load_types
from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.tpu import find_slice, list_generations
from orchestrator.errors import NotFoundError, UserError
from orchestrator.providers.core.record import Phase
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.record import Record
from orchestrator.providers.google.labels import INSTALLATION, INTENT, from_google
from orchestrator.providers.google.recovering import epoch_of, read_host_keys, with_owner
from orchestrator.slices import Candidate, OnDemand, OwnedSlice, RecoveredSlice, SliceKeys, Spot


@dataclass(frozen=True, slots=True)
class ComputeRecovery:
    """Of one slice. Every method may raise Refused, and NotFoundError when it has no instances."""

    api: ComputeApi
    project: str
    found: OwnedSlice

    def describe(self) -> RecoveredSlice:
        """Return the slice as it is now."""
        machines = self._machines()
        labels: Mapping[str, str] = machines[0].get("labels") or {}
        keys, closed = read_host_keys([_metadata(part[0]) for part in self._parts(machines)])
        return RecoveredSlice(
            candidate=self._candidate(machines),
            installation=from_google(labels, INSTALLATION),
            epoch=epoch_of(labels),
            host_public=keys,
            closed=closed,
        )

    def relabel(self, installation: str, epoch: int) -> None:
        """Change the labels of every instance."""
        for machine in self._machines():
            labels = with_owner(machine.get("labels") or {}, installation, epoch)
            self.api.set_labels(self._path(machine), labels, str(machine.get("labelFingerprint", "")))

    def record(self, recovered: RecoveredSlice, keys: SliceKeys, now: float) -> Record:
        """Return what is noted of it here."""
        machines, candidate = self._machines(), recovered.candidate
        parts = self._parts(machines)
        return Record(
            name=self.found.name,
            token=self.found.intent,
            project=self.project,
            zone=candidate.zone,
            slices=len(parts),
            hosts_per_slice=len(parts[0]),
            market=_word(machines[0]),
            internal_ips=bool(candidate.detail("internal_ips")),
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=self.found.created,
            changed=now,
            phase=Phase.ACCEPTED,
            seen=now,
        )

    def _machines(self) -> list[dict[str, Any]]:
        zone = self.found.where.split("/")[2]
        every = self.api.instances(self.project, zone, INTENT, self.found.intent)
        mine = [one for one in every if from_google(one.get("labels") or {}, INTENT) == self.found.intent]
        if not mine:
            raise NotFoundError(f"'{self.found.name}' has no machines", "it waits, or it is deleted", "orch recover")
        return sorted(mine, key=lambda one: (len(str(one["name"])), str(one["name"])))

    def _path(self, machine: Mapping[str, Any]) -> str:
        return f"projects/{self.project}/zones/{self.found.where.split('/')[2]}/instances/{machine['name']}"

    @staticmethod
    def _parts(machines: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the instances of each TPU slice; see parts.py for their names."""
        found: dict[str, list[dict[str, Any]]] = {}
        for one in machines:
            found.setdefault(str(one["name"]).partition("-w-")[0], []).append(one)
        return list(found.values())

    def _candidate(self, machines: Sequence[dict[str, Any]]) -> Candidate:
        parts = self._parts(machines)
        machine = _find_machine(str(machines[0].get("machineType", "")).rpartition("/")[2], len(parts[0]))
        _, region, zone = self.found.where.split("/")
        market = Spot() if _word(machines[0]) == "spot" else OnDemand()
        price = price_per_hour(machine, market, region)
        interfaces: Sequence[Mapping[str, Any]] = machines[0].get("networkInterfaces") or [{}]
        interface = interfaces[0]
        details = {
            "project": self.project,
            "network": str(interface.get("network", "")).rpartition("/")[2],
            "internal_ips": "" if interface.get("accessConfigs") else "yes",
        }
        return Candidate(
            provider="gcp",
            accelerator=machine.name,
            hosts=len(machines),
            chips_per_host=machine.chips_per_host,
            market=market,
            region=region,
            zone=zone,
            price_per_hour=price.times(len(parts)).high if price is not None else None,
            price_note=price.note if price is not None else "",
            details=tuple((key, value) for key, value in details.items() if value),
        )


def _metadata(machine: Mapping[str, Any]) -> dict[str, str]:
    metadata: Mapping[str, Any] = machine.get("metadata") or {}
    items: Sequence[Mapping[str, Any]] = metadata.get("items") or ()
    return {str(item["key"]): str(item.get("value", "")) for item in items}


def _word(machine: Mapping[str, Any]) -> str:
    """Return the market as Record has it."""
    scheduling: Mapping[str, Any] = machine.get("scheduling") or {}
    return {"SPOT": "spot", "FLEX_START": "flex"}.get(str(scheduling.get("provisioningModel", "")), "")


def _find_machine(machine_type: str, hosts: int) -> TpuSlice | ComputeType:
    """Return the machine, or the TPU slice of so many hosts of its type. Raises UserError for one that is not known."""
    if hosts == 1 and machine_type in load_types():
        return load_types()[machine_type]
    for generation in list_generations():
        for size in (*generation.single_host, *generation.sizes):
            found = find_slice(f"{generation.prefix}-{size}") if generation.machine_type else None
            if found is not None and (found.machine_type, found.hosts) == (machine_type, hosts):
                return found
    raise UserError(f"{hosts} x {machine_type} is not a machine that orch knows", "", "orch accelerators   lists them")
