"""What in a project carries our labels or our description: all places, all pages; a missing part is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from orchestrator.providers.core.listed import ListedResource, read_owner
from orchestrator.providers.google.access import SLICE, owner_of
from orchestrator.providers.google.compute.api import ComputeApi, place_of
from orchestrator.providers.google.compute.states import INSTANCE
from orchestrator.providers.google.labels import CLUSTER, INSTALLATION, INTENT, MEMBER, PROJECT, from_google
from orchestrator.slices import SliceState

GROUPS, INSTANCES = "instanceGroupManagers", "instances"
KINDS = (GROUPS, INSTANCES, "instanceTemplates", "resourcePolicies")  # in the order in which they can be deleted


def list_resources(api: ComputeApi, projects: Iterable[str]) -> list[ListedResource]:
    """Return everything that some orch made, in the order of KINDS. Raises Refused, CloudError."""
    every: list[ListedResource] = []
    for project in sorted(projects):
        for kind in KINDS:
            listed = api.templates(project) if kind == "instanceTemplates" else api.everywhere(project, kind)
            every += [one for each in listed if (one := _read_resource(project, kind, each)) is not None]
    return every


def list_ends(resources: Iterable[ListedResource]) -> list[str]:
    """Return the paths of the groups, and of the instances that belong to none of them: a group ends its own."""
    holders = {one.identity: place_of(one.identity) for one in resources if one.holds}
    groups = {place.name for place in holders.values() if place.kind == GROUPS}
    return [path for path, place in holders.items() if place.name.rpartition("-w-")[0] not in groups]


def _read_resource(project: str, kind: str, each: Mapping[str, Any]) -> ListedResource | None:
    owner = read_owner(_owner(each))
    if not owner.slice or not owner.intent:
        return None
    path = f"projects/{project}/{str(each.get('selfLink', '')).partition(f'/projects/{project}/')[2]}"
    scheduling: Mapping[str, Any] = each.get("scheduling") or {}
    return ListedResource(
        identity=path,
        owner=owner,
        where=_where(path),
        state=INSTANCE.get(str(each.get("status", "")), SliceState.UNCLEAR),
        created=_seconds(each),
        holds=kind in (GROUPS, INSTANCES),
        counts=int(kind == INSTANCES),
        machine=str(each.get("machineType", "")).rpartition("/")[2],
        spot=scheduling.get("provisioningModel") == "SPOT",
        place=(path,),
    )


def _where(path: str) -> str:
    scope = place_of(path).scope
    zone = scope.get("zone", "")
    region = scope.get("region", "") or zone.rpartition("-")[0]
    return "/".join(word for word in ("gcp", region, zone) if word)


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
