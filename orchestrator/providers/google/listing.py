"""What in a project carries our labels: over all zones, all pages; a part that does not answer is an error."""

from __future__ import annotations

from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google import labels, states
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.looking import queued_labels
from orchestrator.providers.google.startup import RESOURCE
from orchestrator.slices import OwnedSlice, SliceState

THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A queued resource or a node that some orch made. slice: the slice's name. path: below v2/.

    type: its accelerator type. count: of nodes.
    """

    slice: str
    path: str
    labels: dict[str, str]
    state: SliceState
    created: float
    queued: bool
    adopted: bool = False
    type: str = ""
    count: int = 1
    spot: bool = False

    @property
    def zone(self) -> str:
        return self.path.split("/")[3]

    def owned(self) -> OwnedSlice:
        keys = (labels.CLUSTER, labels.INSTALLATION, labels.INTENT, labels.PROJECT, labels.MEMBER)
        word = {key: labels.from_google(self.labels, key) for key in keys}
        return OwnedSlice(
            name=self.slice,
            cluster=word[labels.CLUSTER],
            installation=word[labels.INSTALLATION],
            state=self.state,
            created=self.created,
            where=f"gcp/{self.zone.rpartition('-')[0]}/{self.zone}",
            intent=word[labels.INTENT],
            adopted=self.adopted,
            machine=self.type,
            count=self.count,
            spot=self.spot,
            project=word[labels.PROJECT],
            member=word[labels.MEMBER],
        )


def listed(api: TpuApi, projects: Iterable[str], sure: Container[str] | None = None) -> list[Listed]:
    """One entry per slice; what is left of a queued resource is one too. Raises Refused, CloudError.

    sure: zones that must answer, None for all. Of the others, Google lists some that it then says are closed to the
    project (gpuhunt issue 98, 2024): nothing of the project's can be there.
    """
    found: list[Listed] = []
    for project in sorted(projects):
        zones = api.zones(project)
        with ThreadPoolExecutor(THREADS) as pool:
            for part in pool.map(partial(_zone, api, project, sure), zones):
                found += part
    return found


def _zone(api: TpuApi, project: str, sure: Container[str] | None, zone: str) -> list[Listed]:
    try:
        return _one_zone(api, f"projects/{project}/locations/{zone}")
    except Refused as refused:
        if sure is None or zone in sure or refused.answer.kind is not Kind.NOT_OFFERED:
            raise
        return []


def _one_zone(api: TpuApi, parent: str) -> list[Listed]:
    requests = [_of_queued(one) for one in api.queued_resources(parent) if labels.INTENT in queued_labels(one)]
    nodes = [_of_node(one) for one in api.nodes(parent) if labels.INTENT in one.labels]
    labelled = {node.slice: node.labels for node in nodes}  # those of a queued resource cannot follow a take-over
    requests = [replace(one, labels=labelled.get(one.slice, one.labels)) for one in requests]
    whole = {one.slice for one in requests}
    rest: dict[str, Listed] = {}
    for node in nodes:
        if node.slice not in whole:
            known = rest.get(node.slice)
            rest[node.slice] = node if known is None else replace(known, count=known.count + 1)
    return [*requests, *rest.values()]


def _of_queued(one: Any) -> Listed:
    state = states.QUEUED.get(one.state.state.name, SliceState.UNCLEAR)
    return Listed(
        slice=_last(one.name),
        path=one.name,
        labels=queued_labels(one),
        state=state,
        created=_seconds(one.create_time),
        queued=True,
        type=str(one.tpu.node_spec[0].node.accelerator_type) if one.tpu.node_spec else "",
        count=sum(max(1, spec.multislice_params.node_count) for spec in one.tpu.node_spec),
        spot="spot" in one,
    )


def _of_node(one: Any) -> Listed:
    """Its slice is what it would end itself (see startup.RESOURCE): a node of several slices has another name.

    An adopted one has the name of its maker; its label says that of the slice.
    """
    adopted = labels.from_google(one.labels, labels.ADOPTED)
    name = adopted or _last(str(one.metadata.get(RESOURCE, "")).partition("?")[0]) or _last(one.name)
    state, made = states.node_view(one).state, _seconds(one.create_time)
    return Listed(
        slice=name,
        path=one.name,
        labels=dict(one.labels),
        state=state,
        created=made,
        queued=False,
        adopted=bool(adopted),
        type=str(one.accelerator_type),
        spot=bool(one.scheduling_config.spot or one.scheduling_config.preemptible),
    )


def _seconds(moment: Any) -> float:
    return float(moment.timestamp()) if moment else 0.0


def _last(path: str) -> str:
    return path.rpartition("/")[2]
