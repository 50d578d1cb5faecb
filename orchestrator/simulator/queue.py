"""Queued requests, which wait for machines, become nodes, expire, and are suspended when they lose their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.simulator import capacity, lifecycle
from orchestrator.simulator.calls import ApiError, Code, CreateCall, QueueCall
from orchestrator.simulator.rules import QUEUE_LOOK, QUEUE_MOVES
from orchestrator.simulator.state import Phase, Queued, QueuePhase, Resource
from orchestrator.simulator.world import World

_LOST = frozenset({Phase.PREEMPTED, Phase.FAILED, Phase.ENDING})


def add(world: World, call: QueueCall, nodes: Sequence[Mapping[str, Any]]) -> Queued:
    """Return the request of this id, or add a new one.

    Raises:
        ApiError: The name is taken, or the id was used for another request.
    """
    state = world.state
    digest = " ".join(each.digest() for each in call.nodes)
    for other in state.queued.values():
        if other.gone:
            continue
        if call.request_id and other.token == call.request_id:
            if other.request != digest or other.name != call.name:
                raise ApiError(Code.TOKEN_MISMATCH, f"the request id of {call.name} was used for another request")
            return other
        if other.name == call.name and other.zone == call.node.zone:
            raise ApiError(Code.ALREADY_EXISTS, f"queued request {call.name} exists in {call.node.zone}")
    if not world.scenario.region(call.node.zone):
        raise ApiError(Code.INVALID, f"there is no zone {call.node.zone!r}")
    place, hosts = call.node, sum(each.hosts for each in call.nodes)
    capacity.check_quota(world, place.zone, place.accelerator, place.market, hosts, place.chips_per_host)
    queued = Queued(
        uid=f"q{world.number():06d}",
        name=call.name,
        zone=place.zone,
        token=call.request_id,
        request=digest,
        node=dict(nodes[0]),
        more=[dict(each) for each in nodes[1:]],
        not_before=state.now + call.not_before,
        created=state.now,
        valid_until=None if call.valid_for is None else state.now + call.valid_for,
        past=[(state.now, QueuePhase.CREATING.value)],
    )
    state.queued[queued.uid] = queued
    _come(world, queued, QueuePhase.ACCEPTED)
    if call.valid_for is not None:
        world.due(call.valid_for, "queue-expire", queued.uid)
    return queued


def find(world: World, name: str, zone: str = "") -> Queued:
    """Find a queued request.

    Raises:
        ApiError: NOT_FOUND.
    """
    for queued in world.state.queued.values():
        if queued.name == name and not queued.gone and zone in ("", queued.zone):
            return queued
    raise ApiError(Code.NOT_FOUND, f"there is no queued request {name}")


def delete(world: World, queued: Queued, *, force: bool) -> None:
    """Delete a queued request.

    Raises:
        ApiError: WRONG_STATE where the rules forbid it.
    """
    nodes = nodes_of(world, queued)
    if queued.phase is QueuePhase.DELETING:
        return
    if queued.phase is QueuePhase.SUSPENDING:
        raise ApiError(Code.WRONG_STATE, f"{queued.name} is suspending; wait until it is suspended")
    if nodes and not force:
        raise ApiError(Code.WRONG_STATE, f"{queued.name} has a living node; delete it first, or use force")
    move(world, queued, QueuePhase.DELETING)
    if not nodes:
        world.due(world.span(world.scenario.durations.queue), "queue-come", queued.uid, queued.epoch, "")
    _end_all(world, nodes)


def reset(world: World, queued: Queued) -> None:
    """Put a suspended or failed request into the queue again.

    Raises:
        ApiError: WRONG_STATE if it has not ended, QUOTA if its share of the quota is taken.
    """
    if queued.phase not in (QueuePhase.SUSPENDED, QueuePhase.FAILED) or nodes_of(world, queued):
        words = f"{queued.name} is {queued.phase}; only a suspended or failed one can be reset"
        raise ApiError(Code.WRONG_STATE, words)
    before = queued.phase
    queued.phase = QueuePhase.FAILED  # its own share of the quota does not stand in its way
    try:
        node, hosts = queued.node, sum(int(each["hosts"]) for each in queued.nodes)
        kind = (str(node["zone"]), str(node["accelerator"]), str(node["market"]))
        capacity.check_quota(world, *kind, hosts, int(node["chips_per_host"]))
    finally:
        queued.phase = before
    queued.valid_until = None  # the time it named is over
    move(world, queued, QueuePhase.ACCEPTED)
    _come(world, queued, QueuePhase.WAITING)


def move(world: World, queued: Queued, phase: QueuePhase, reason: str = "") -> None:
    """Change the phase now.

    Raises:
        RuntimeError: The move is not in the table, which is a bug of the simulator.
    """
    if phase not in QUEUE_MOVES[queued.phase]:
        raise RuntimeError(f"queued request {queued.name} cannot go from {queued.phase} to {phase}")
    queued.phase, queued.reason = phase, reason
    queued.epoch += 1
    queued.past.append((world.state.now, phase.value))


def nodes_of(world: World, queued: Queued) -> list[Resource]:
    """Return its existing nodes, in order of creation."""
    return [resource for resource in world.living() if resource.queued == queued.uid]


def node_moved(world: World, node: Resource) -> None:
    """Update the request after a node has changed its phase."""
    queued = world.state.queued[node.queued]
    nodes = nodes_of(world, queued)
    if node.phase is Phase.READY and queued.phase is QueuePhase.PROVISIONING:
        if len(nodes) == len(queued.nodes) and all(each.phase is Phase.READY for each in nodes):
            move(world, queued, QueuePhase.ACTIVE)
    elif node.phase in _LOST and queued.phase in (QueuePhase.ACTIVE, QueuePhase.PROVISIONING):
        move(world, queued, QueuePhase.SUSPENDING, node.reason)
        _end_all(world, nodes)
    elif node.phase is Phase.ABSENT and queued.phase is QueuePhase.SUSPENDING and not nodes:
        move(world, queued, QueuePhase.SUSPENDED, queued.reason)
    elif node.phase is Phase.ABSENT and queued.phase is QueuePhase.DELETING and not nodes:
        queued.gone = True


def came(world: World, uid: str, epoch: int, phase: str) -> None:
    """Carry out a scheduled change of phase; "" means that the request is deleted."""
    queued = world.state.queued[uid]
    if queued.epoch != epoch or queued.gone:
        return
    if not phase:
        queued.gone = True
        return
    move(world, queued, QueuePhase(phase))
    if queued.phase is QueuePhase.ACCEPTED:
        _come(world, queued, QueuePhase.WAITING)
    elif queued.phase is QueuePhase.WAITING:
        look(world, "")


def look(world: World, _: str) -> None:
    """Give machines to waiting requests in order of arrival, and repeat later while one still waits."""
    waiting = [queued for queued in world.state.queued.values() if queued.phase is QueuePhase.WAITING]
    short: set[tuple[str, str, str]] = set()  # kinds for which an earlier request waits already
    for queued in waiting:
        kind = (queued.zone, str(queued.node["accelerator"]), str(queued.node["market"]))
        if queued.not_before > world.state.now:
            continue
        if kind in short or not _provision(world, queued):
            short.add(kind)
    again = any(queued.phase is QueuePhase.WAITING for queued in waiting)
    if again and not any(due.kind == "queue-look" for due in world.state.agenda):
        world.due(QUEUE_LOOK, "queue-look", "")


def expire(world: World, uid: str) -> None:
    """Fail a request that still waits when its time is over; it stays in the queue."""
    queued = world.state.queued[uid]
    if queued.valid_until is not None and queued.phase in (
        QueuePhase.CREATING,
        QueuePhase.ACCEPTED,
        QueuePhase.WAITING,
    ):
        move(world, queued, QueuePhase.FAILED, "no machines became free in time")


def _provision(world: World, queued: Queued) -> bool:
    """Create the nodes; return False without capacity, so that later requests wait as well."""
    from orchestrator.simulator.requests import create

    calls = [CreateCall(**node) for node in queued.nodes]
    try:
        _check_all(world, calls)
        for call in calls:
            create(world, call, None, queued.uid)
    except ApiError as error:
        if error.code is Code.NO_CAPACITY:
            return False
        move(world, queued, QueuePhase.FAILED, error.words)
        return True
    move(world, queued, QueuePhase.PROVISIONING)
    return True


def _check_all(world: World, calls: Sequence[CreateCall]) -> None:
    """Check the capacity for all nodes together; for a single node `create` does that.

    Raises:
        ApiError: A name is taken, or quota or capacity is missing.
    """
    if len(calls) == 1:
        return
    first, hosts = calls[0], sum(call.hosts for call in calls)
    taken = next((call.name for call in calls if world.find(call.name, call.zone) is not None), "")
    if taken:
        raise ApiError(Code.ALREADY_EXISTS, f"{taken} exists in {first.zone}")
    capacity.check_quota(world, first.zone, first.accelerator, first.market, hosts, first.chips_per_host)
    capacity.check_room(world, first.zone, first.accelerator, first.market, hosts, first.chips_per_host)


def _end_all(world: World, nodes: Sequence[Resource]) -> None:
    for node in nodes:
        if node.phase is not Phase.ENDING:
            lifecycle.begin_end(world, node)


def _come(world: World, queued: Queued, phase: QueuePhase) -> None:
    world.due(world.span(world.scenario.durations.queue), "queue-come", queued.uid, queued.epoch, phase.value)
