"""What in a project carries our labels: over all zones, all pages; a part that does not answer is an error."""

from __future__ import annotations

from collections.abc import Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.core.listed import ListedResource, Owner
from orchestrator.providers.google import labels, states
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.observing import queued_labels
from orchestrator.providers.google.startup import RESOURCE
from orchestrator.slices import SliceState

THREADS = 8


def list_labelled(api: TpuApi, project: str, required: Container[str] | None = None) -> list[ListedResource]:
    """Return the queued resources of a project, and the nodes that none of them ends.

    Args:
        api: Of any project.
        project: Of the machines.
        required: Zones that must answer, None for all. Of the others, Google lists some that it then reports to be
            closed to the project (gpuhunt issue 98, 2024): nothing of the project's can be there.

    Raises:
        Refused: A zone did not answer.
        CloudError: The same.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        parts = pool.map(partial(_in_zone, api, project, required), api.zones(project))
        return [one for part in parts for one in part]


def _in_zone(api: TpuApi, project: str, required: Container[str] | None, zone: str) -> list[ListedResource]:
    parent = f"projects/{project}/locations/{zone}"
    try:
        queued = [one for one in api.queued_resources(parent) if labels.INTENT in queued_labels(one)]
        nodes = [_node(one) for one in api.nodes(parent) if _made_by_orch(one.labels)]
    except Refused as refused:
        if required is None or zone in required or refused.answer.kind is not Kind.NOT_OFFERED:
            raise
        return []
    owners = {node.owner.slice: node.owner for node in nodes}
    ends = {_last(one.name) for one in queued}
    return [*(_queued(one, owners) for one in queued), *(node for node in nodes if node.owner.slice not in ends)]


def _queued(one: Any, owners: Mapping[str, Owner]) -> ListedResource:
    """Its own labels cannot follow when a slice is taken over: those of its nodes decide, where it has any."""
    name, specs = _last(one.name), one.tpu.node_spec
    return ListedResource(
        identity=one.name,
        owner=owners.get(name) or _owner(name, queued_labels(one)),
        where=_where(one.name),
        state=states.QUEUED.get(one.state.state.name, SliceState.UNCLEAR),
        created=_seconds(one.create_time),
        holds=True,
        counts=sum(max(1, spec.multislice_params.node_count) for spec in specs),
        machine=str(specs[0].node.accelerator_type),
        spot="spot" in one,
    )


def _node(one: Any) -> ListedResource:
    """Its slice is what it would end itself (see startup.RESOURCE): a node of several slices has another name."""
    ends = str(one.metadata.get(RESOURCE, "")).partition("?")[0]
    return ListedResource(
        identity=one.name,
        owner=_owner(_last(ends) or _last(one.name), one.labels),
        where=_where(one.name),
        state=states.node_view(one).state,
        created=_seconds(one.create_time),
        holds=True,
        counts=1,
        machine=str(one.accelerator_type),
        spot=bool(one.scheduling_config.spot or one.scheduling_config.preemptible),
    )


def _made_by_orch(found: Mapping[str, str]) -> bool:
    """Return whether a node is one of orch's; a person's own that an earlier `orch adopt` labelled is not."""
    return labels.INTENT in found and labels.ADOPTED not in found


def _owner(name: str, found: Mapping[str, str]) -> Owner:
    return Owner(
        slice=name,
        intent=labels.from_google(found, labels.INTENT),
        installation=labels.from_google(found, labels.INSTALLATION),
        cluster=labels.from_google(found, labels.CLUSTER),
        project=labels.from_google(found, labels.PROJECT),
        member=labels.from_google(found, labels.MEMBER),
    )


def _where(path: str) -> str:
    zone = path.split("/")[3]
    return f"gcp/{zone.rpartition('-')[0]}/{zone}"


def _seconds(moment: Any) -> float:
    return float(moment.timestamp()) if moment else 0.0


def _last(path: str) -> str:
    return path.rpartition("/")[2]
