"""What in a project carries our labels or our description: all places, all pages; a missing part is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.providers.google.access import SLICE, owner_of
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.states import INSTANCE
from orchestrator.providers.google.labels import CLUSTER, INSTALLATION, INTENT, MEMBER, PROJECT, from_google
from orchestrator.slices import OwnedSlice, SliceState

MACHINES = ("instanceGroupManagers", "instances")
KINDS = (*MACHINES, "instanceTemplates", "resourcePolicies")  # in the order in which they can be deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing that some orch made. owner: our words on it by their label. path: below the version of the API.

    member: it belongs to a group and goes with it. type: of an instance.
    """

    kind: str
    path: str
    owner: Mapping[str, str]
    state: SliceState
    created: float
    member: bool = False
    type: str = ""
    spot: bool = False

    @property
    def slice(self) -> str:
        return self.owner[SLICE]

    @property
    def where(self) -> str:
        place = self.path.split("/")[3] if "/global/" not in self.path else ""
        region = place.rpartition("-")[0] if "/zones/" in self.path else place
        return "/".join(word for word in ("gcp", region, place if "/zones/" in self.path else "") if word)


def found(api: ComputeApi, projects: Iterable[str]) -> list[Found]:
    """All of them, in the order of KINDS. Raises Refused, CloudError."""
    every: list[Found] = []
    for project in sorted(projects):
        for kind in KINDS:
            listed = api.templates(project) if kind == "instanceTemplates" else api.everywhere(project, kind)
            every += [one for each in listed if (one := _found(project, kind, each)) is not None]
    return every


def owned(every: Iterable[Found]) -> tuple[OwnedSlice, ...]:
    """One entry per slice."""
    slices: dict[tuple[str, str], list[Found]] = {}
    for one in every:
        slices.setdefault((one.slice, one.owner.get(INTENT, "")), []).append(one)
    return tuple(_owned(name, things) for (name, _), things in slices.items())


def state_of(things: Iterable[Found]) -> SliceState:
    """Of a slice with all that there is of it. What has no machines any more must be ended: FAILED."""
    machines = [one.state for one in things if one.kind == "instances"]
    groups = [one for one in things if one.kind == "instanceGroupManagers"]
    if not machines:
        return SliceState.CREATING if groups else SliceState.FAILED
    return machines[0] if len(set(machines)) == 1 else SliceState.UNCLEAR


def _owned(name: str, things: list[Found]) -> OwnedSlice:
    owner = next((one.owner for one in things if one.kind == "instances"), things[0].owner)
    where = next((one.where for one in things if one.kind in MACHINES), things[0].where)
    machines = [one for one in things if one.kind == "instances"]
    return OwnedSlice(
        name=name,
        cluster=owner.get(CLUSTER, ""),
        installation=owner.get(INSTALLATION, ""),
        state=state_of(things),
        created=min(one.created for one in things),
        where=where,
        intent=owner.get(INTENT, ""),
        machine=machines[0].type if machines else "",
        count=len(machines),
        spot=any(one.spot for one in machines),
        project=owner.get(PROJECT, ""),
        member=owner.get(MEMBER, ""),
    )


def _found(project: str, kind: str, each: Mapping[str, Any]) -> Found | None:
    owner = _owner(each)
    if not owner.get(SLICE) or not owner.get(INTENT):
        return None
    path = str(each.get("selfLink", "")).partition(f"/projects/{project}/")[2]
    state = INSTANCE.get(str(each.get("status", "")), SliceState.UNCLEAR)
    member = kind == "instances" and "-w-" in str(each.get("name", ""))
    scheduling: Mapping[str, Any] = each.get("scheduling") or {}
    return Found(
        kind=kind,
        path=f"projects/{project}/{path}",
        owner=owner,
        state=state,
        created=_seconds(each),
        member=member,
        type=str(each.get("machineType", "")).rpartition("/")[2],
        spot=scheduling.get("provisioningModel") == "SPOT",
    )


def _owner(each: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = each.get("labels") or {}
    if INTENT in labels:
        return {key: from_google(labels, key) for key in (CLUSTER, INSTALLATION, INTENT, PROJECT, MEMBER, SLICE)}
    return owner_of(str(each.get("description", "")))


def _seconds(each: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(each.get("creationTimestamp", ""))).timestamp()
    except ValueError:
        return 0.0
