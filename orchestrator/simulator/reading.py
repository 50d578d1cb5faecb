"""Reads of the cloud, which show the present or, within the scenario's limits, an older state."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.simulator import queue
from orchestrator.simulator.calls import ApiError, Code, HostLook, Look, Page, QueueLook
from orchestrator.simulator.scenario import Fault, FaultKind
from orchestrator.simulator.state import Phase, Queued, Resource
from orchestrator.simulator.world import World, host_alias

_SHOWS_HOSTS = frozenset({Phase.CREATING, Phase.READY, Phase.MAINTENANCE, Phase.STARTING})


def describe_resource(resource: Resource, phase: Phase | None = None) -> Look:
    """Return a resource as the API shows it; `phase` may be an older one."""
    phase = resource.phase if phase is None else phase
    seen = resource.hosts if phase in _SHOWS_HOSTS else ()
    return Look(
        uid=resource.uid,
        name=resource.name,
        zone=resource.zone,
        accelerator=resource.accelerator,
        market=resource.market,
        phase=phase,
        reason=resource.reason if phase is resource.phase else "",
        labels=dict(resource.labels),
        extra=dict(resource.extra),
        created=resource.created,
        size=len(resource.hosts),
        hosts=tuple(
            HostLook(
                rank=host.rank, address=host.address, alias=host_alias(resource, host.rank), up=host.up, dies=host.dies
            )
            for host in seen
        ),
        queued=resource.queued,
    )


def queue_shown(world: World, queued: Queued) -> QueueLook:
    uid = next((node.uid for node in queue.nodes_of(world, queued)), "")
    return QueueLook(
        uid=queued.uid,
        name=queued.name,
        zone=queued.zone,
        phase=queued.phase,
        reason=queued.reason,
        node_name=str(queued.node["name"]),
        node_uid=uid,
    )


def queue_listing(world: World) -> tuple[QueueLook, ...]:
    return tuple(queue_shown(world, queued) for queued in world.state.queued.values() if not queued.gone)


def get(world: World, name: str, zone: str, fault: Fault | None) -> Look:
    """Return one resource.

    Raises:
        ApiError: NOT_FOUND; within the scenario's lag also for a resource that was just created.
    """
    for found in _seen(world, fault, name):
        if zone in ("", found.zone):
            return found
    raise ApiError(Code.NOT_FOUND, f"there is no {name}" + (f" in {zone}" if zone else ""))


def listing(world: World, page: str, size: int | None, fault: Fault | None) -> Page:
    """Return one page of the listing; `page` is the uid after which it starts, or ""."""
    if fault is not None and fault.kind is FaultKind.EMPTY_PAGE:
        return Page((), page or "0")
    items = [look for look in _seen(world, fault) if look.uid > page]
    unreachable: tuple[str, ...] = ()
    if fault is not None and fault.kind is FaultKind.PARTIAL:
        zones = sorted({look.zone for look in items}) or [world.scenario.zones[0].name]
        unreachable = (zones[int(world.chance() * len(zones))],)
        items = [look for look in items if look.zone not in unreachable]
    size = size or world.scenario.page
    more = items[size - 1].uid if len(items) > size else ""
    return Page(tuple(items[:size]), more, unreachable)


def phase_at(resource: Resource, time: float) -> Phase | None:
    """Return the phase at a time, or None before the creation."""
    before = [phase for at, phase in resource.past if at <= time]
    return Phase(before[-1]) if before else None


def _seen(world: World, fault: Fault | None, name: str = "") -> Iterable[Look]:
    """Return what a read shows now, in order of creation."""
    stale = fault.seconds if fault is not None and fault.kind is FaultKind.STALE else 0.0
    lag = world.scenario.lag * world.chance() if world.scenario.lag else 0.0
    if not stale and not lag:
        return (describe_resource(resource) for resource in world.living() if name in ("", resource.name))
    return _older(world, name, stale, lag)


def _older(world: World, name: str, stale: float, lag: float) -> Iterable[Look]:
    """Yield an older state.

    Args:
        world: The cloud.
        name: The resource, or "" for all.
        stale: Age of the phases in seconds; existence is current.
        lag: Age in seconds of both phases and existence.
    """
    now = world.state.now
    for resource in world.state.resources.values():
        if name not in ("", resource.name):
            continue
        phase = phase_at(resource, now - max(stale, lag))
        if phase is None and not lag:
            phase = Phase.CREATING
        hidden = phase in (None, Phase.ABSENT) or (resource.phase is Phase.ABSENT and not lag)
        if not hidden:
            yield describe_resource(resource, phase)
