"""What each call of the API does when it gets through. `cloud.py` stands before it with faults and the audit log.

Every function raises ApiError for a request that the cloud refuses, and then has changed nothing.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from orchestrator.simulator import capacity, lifecycle
from orchestrator.simulator.calls import ApiError, Code, CreateCall
from orchestrator.simulator.scenario import Fault, FaultKind
from orchestrator.simulator.state import Phase, Resource
from orchestrator.simulator.world import World, is_absent


def create(world: World, call: CreateCall, fault: Fault | None, queued: str = "") -> Resource:
    """Return the resource of this token, or create one."""
    call = _placed(world, call)
    digest = call.digest()
    known = _known(world, call, digest)
    if known is not None:
        return known
    name = _free_name(world, call)
    capacity.check_quota(world, call.zone, call.accelerator, call.market, call.hosts, call.chips_per_host)
    late = fault is not None and fault.kind is FaultKind.LATE_STOCKOUT
    if not late:
        capacity.check_room(world, call.zone, call.accelerator, call.market, call.hosts, call.chips_per_host)
    resource = lifecycle.make(world, call, name, digest)
    resource.queued = queued
    seconds = world.span(world.scenario.durations.create) + slower(fault)
    if late:
        lifecycle.arrive(world, resource, seconds, Phase.FAILED, f"there is no capacity for {call.accelerator}")
        return resource
    if fault is not None and fault.kind is FaultKind.HALF_MADE:
        resource.hosts[-1 if fault.rank is None else fault.rank % call.hosts].stuck = True
    lifecycle.arrive(world, resource, seconds, Phase.READY)
    return resource


def create_later(world: World, call: CreateCall, seconds: float) -> None:
    """Schedule a create request that arrives late."""
    fields = asdict(replace(call, labels=dict(call.labels), extra=dict(call.extra)))
    world.due(seconds, "late-create", "", fields)


def end(world: World, resource: Resource, fault: Fault | None) -> None:
    kind = fault.kind if fault is not None else None
    if kind is FaultKind.IGNORED:
        return
    if kind is FaultKind.STUCK and resource.phase is not Phase.ENDING:
        lifecycle.move(world, resource, Phase.ENDING)
        resource.stuck_end = True
        return
    lifecycle.begin_end(world, resource, slower(fault))


def stop(world: World, resource: Resource, fault: Fault | None) -> None:
    if resource.phase in (Phase.STOPPING, Phase.STOPPED):
        return
    if resource.phase is not Phase.READY:
        raise ApiError(Code.WRONG_STATE, f"{resource.name} is {resource.phase}")
    if fault is not None and fault.kind is FaultKind.IGNORED:
        return
    lifecycle.move(world, resource, Phase.STOPPING)
    lifecycle.arrive(world, resource, world.span(world.scenario.durations.stop) + slower(fault), Phase.STOPPED)


def start(world: World, resource: Resource, fault: Fault | None) -> None:
    if resource.phase in (Phase.STARTING, Phase.READY):
        return
    if resource.phase is not Phase.STOPPED:
        raise ApiError(Code.WRONG_STATE, f"{resource.name} is {resource.phase}")
    if fault is not None and fault.kind is FaultKind.IGNORED:
        return
    count = len(resource.hosts)
    capacity.check_quota(world, resource.zone, resource.accelerator, resource.market, count, resource.chips_per_host)
    capacity.check_room(world, resource.zone, resource.accelerator, resource.market, count, resource.chips_per_host)
    lifecycle.move(world, resource, Phase.STARTING)
    lifecycle.arrive(world, resource, world.span(world.scenario.durations.start) + slower(fault), Phase.READY)


def slower(fault: Fault | None) -> float:
    return fault.seconds if fault is not None and fault.kind is FaultKind.SLOW else 0.0


def _placed(world: World, call: CreateCall) -> CreateCall:
    """Check the fields of the request alone."""
    if call.hosts < 1:
        raise ApiError(Code.INVALID, f"{call.hosts} hosts were requested")
    if not world.scenario.region(call.zone):
        known = ", ".join(zone.name for zone in world.scenario.zones)
        raise ApiError(Code.INVALID, f"there is no zone {call.zone!r}; there are: {known}")
    return call


def _known(world: World, call: CreateCall, digest: str) -> Resource | None:
    """Return the resource that an earlier call with this token created (rules token_...)."""
    state = world.state
    if not call.token or not world.scenario.honour_tokens or call.token not in state.tokens:
        return None
    uid, until = state.tokens[call.token]
    if until is not None and state.now > until:
        del state.tokens[call.token]
        return None
    resource = state.resources[uid]
    if resource.request != digest:
        raise ApiError(Code.TOKEN_MISMATCH, f"the token of {call.name} was used for another request")
    if is_absent(resource):
        raise ApiError(Code.TOKEN_SPENT, f"what the token of {call.name} made has ended")
    return resource


def _free_name(world: World, call: CreateCall) -> str:
    """Return the requested name; where tokens are not honoured, a repeated create gets a numbered name."""
    holder = world.find(call.name, call.zone)
    if holder is None:
        return call.name
    if world.scenario.honour_tokens or not call.token or holder.token != call.token:
        raise ApiError(Code.ALREADY_EXISTS, f"{call.name} exists in {call.zone}")
    number = 2
    while world.find(f"{call.name}-{number}", call.zone) is not None:
        number += 1
    return f"{call.name}-{number}"
