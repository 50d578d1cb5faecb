"""Processing of the agenda: everything that is due until now, in order, each at its own time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import Any

from orchestrator.simulator import capacity, lifecycle, programs, queue
from orchestrator.simulator.calls import ApiError, CreateCall
from orchestrator.simulator.rules import MOVES
from orchestrator.simulator.scenario import Deed, Happening
from orchestrator.simulator.state import Call, Phase, Resource
from orchestrator.simulator.world import World

_ONE_HOST = frozenset({Deed.FAIL_HOST, Deed.REBOOT_HOST, Deed.SILENCE_HOST, Deed.IMPOSTOR_HOST})


def advance_to(world: World, now: float) -> None:
    """Advance the cloud to this time; a clock that moved back changes nothing."""
    state = world.state
    agenda = state.agenda
    while agenda and agenda[0].at <= now:
        due = heappop(agenda)
        state.now = max(state.now, due.at)
        _HANDLERS[due.kind](world, due.subject, *due.detail)
    state.now = max(state.now, now)


def do(world: World, resource: Resource, happening: Happening, rank: int | None = None) -> None:
    """Apply an event to this resource now; `rank` overrides the event's own."""
    rank = happening.rank if rank is None else rank
    state = world.state
    state.calls.append(Call(state.now, f"deed.{happening.do}", resource.name, "", "ok", acted=True, uid=resource.uid))
    if happening.do in _ONE_HOST:
        _to_host(world, resource, happening, rank or 0)
    elif happening.do is Deed.CAPACITY:
        _set_capacity(world, happening)
    elif happening.do is Deed.PREEMPT:
        _preempt(world, resource, happening, rank)
    elif happening.do is Deed.MAINTENANCE:
        lifecycle.maintain(world, resource)
    elif happening.do is Deed.FAIL and Phase.FAILED in MOVES[resource.phase]:
        lifecycle.move(world, resource, Phase.FAILED, "the provider gave up on it")
    elif happening.do is Deed.VANISH and resource.phase is not Phase.ENDING:
        lifecycle.begin_end(world, resource)
    elif happening.do in (Deed.HANG, Deed.EXIT):
        for host in resource.hosts:
            if rank in (None, host.rank) and happening.do is Deed.HANG:
                programs.freeze(host, state.now)
            elif rank in (None, host.rank):
                for job in host.jobs.values():
                    programs.stop(job, state.now, happening.exit_code)


def step_reached(world: World, resource: Resource, rank: int, step: int) -> None:
    """Apply the events that wait for this step of the program on this host."""
    for index, happening in enumerate(world.scenario.happenings):
        mine = (happening.rank or 0) == rank and lifecycle.matches(happening, resource)
        if happening.step is not None and mine and step >= happening.step and _may(world, index, happening):
            do(world, resource, happening)


def _may(world: World, index: int, happening: Happening) -> bool:
    """Count the event and return True, unless it has happened as often as it may."""
    key = f"happening {index}"
    fired = world.state.fired.get(key, 0)
    if happening.times and fired >= happening.times:
        return False
    world.state.fired[key] = fired + 1
    return True


def _happen(world: World, uid: str, index: int) -> None:
    """Apply an event of the scenario to one resource, or with uid "" to all that match."""
    happening = world.scenario.happenings[index]
    if happening.do is Deed.CAPACITY:
        _set_capacity(world, happening)
        return
    if uid:
        found = [world.state.resources[uid]]
    else:
        found = [resource for resource in world.living() if lifecycle.matches(happening, resource)]
    alive = [resource for resource in found if resource.phase is Phase.READY or happening.do not in _NEEDS_READY]
    alive = [resource for resource in alive if resource.phase is not Phase.ABSENT]
    if alive and _may(world, index, happening):
        for resource in alive:
            do(world, resource, happening)


def _set_capacity(world: World, happening: Happening) -> None:
    key = capacity.pool_key(happening.zone, happening.accelerator, happening.market)
    world.state.capacity[key] = happening.amount


_NEEDS_READY = frozenset(Deed) - {Deed.CAPACITY, Deed.FAIL, Deed.VANISH}


def _preempt(world: World, resource: Resource, happening: Happening, rank: int | None) -> None:
    if happening.notice > 0:
        _notice(world, resource.uid, happening.notice, rank)
    else:
        _die(world, resource.uid, rank)


def _notice(world: World, uid: str, notice: float, rank: int | None = None) -> None:
    """Give the hosts notice of their preemption and schedule it."""
    resource = world.state.resources[uid]
    if resource.phase is not Phase.READY:
        if Phase.PREEMPTED in MOVES[resource.phase]:
            lifecycle.preempt(world, resource, "preempted")
        return
    for host in resource.hosts:
        if rank in (None, host.rank):
            host.dies = world.state.now + notice
    world.due(notice, "die", uid, rank, resource.epoch)


def _die(world: World, uid: str, rank: int | None, epoch: int | None = None) -> None:
    resource = world.state.resources[uid]
    if epoch is not None and resource.epoch != epoch:
        return
    which = f"host {rank} of {len(resource.hosts)} was preempted" if rank is not None else "preempted"
    lifecycle.preempt(world, resource, which)


def _to_host(world: World, resource: Resource, happening: Happening, rank: int) -> None:
    host = resource.hosts[rank % len(resource.hosts)]
    now = world.state.now
    if happening.do is Deed.SILENCE_HOST:
        host.silent_until = max(host.silent_until, now + happening.seconds)
    elif happening.do is Deed.IMPOSTOR_HOST:
        host.impostor = True
    elif not host.up:
        return  # it is off already
    elif happening.do is Deed.FAIL_HOST:
        lifecycle.take_down(world, host)
        world.due(world.span(world.scenario.durations.detect), "detect", resource.uid, resource.epoch, host.rank)
    else:
        lifecycle.take_down(world, host)
        host.boots += 1
        wait = world.span(world.scenario.durations.reboot)
        world.due(wait, "host-up", resource.uid, resource.epoch, host.rank, host.boots)


def _detect(world: World, uid: str, epoch: int, rank: int) -> None:
    resource = world.state.resources[uid]
    if resource.epoch == epoch and not resource.hosts[rank].up:
        lifecycle.move(world, resource, Phase.FAILED, f"host {rank} of {len(resource.hosts)} is dead")


def _host_up(world: World, uid: str, epoch: int, rank: int, boots: int) -> None:
    resource = world.state.resources[uid]
    if resource.epoch == epoch and resource.hosts[rank].boots == boots:
        resource.hosts[rank].up = True


def _step(world: World, uid: str, index: int, rank: int, job: str) -> None:
    """Apply an event at the time at which a job makes the step that the event waits for."""
    resource = world.state.resources[uid]
    known = resource.hosts[rank].jobs.get(job)
    happening = world.scenario.happenings[index]
    running = known is not None and known.froze is None and programs.is_running(known, world.state.now)
    if running and resource.phase is Phase.READY and _may(world, index, happening):
        do(world, resource, happening)


def _late_create(world: World, _: str, fields: dict[str, Any]) -> None:
    from orchestrator.simulator.requests import create

    try:
        create(world, CreateCall(**fields), None)
    except ApiError:
        return  # no client waits for its answer any more


def _late_end(world: World, uid: str) -> None:
    resource = world.state.resources[uid]
    if resource.phase is not Phase.ABSENT:
        lifecycle.begin_end(world, resource)


_HANDLERS: dict[str, Callable[..., None]] = {
    "arrive": lifecycle.came,
    "happen": _happen,
    "notice": _notice,
    "die": _die,
    "detect": _detect,
    "host-up": _host_up,
    "step": _step,
    "late-create": _late_create,
    "late-end": _late_end,
    "queue-come": queue.came,
    "queue-look": queue.look,
    "queue-expire": queue.expire,
}
