"""Lifecycle of a resource: its creation, its changes of phase, and their effects on its hosts."""

from __future__ import annotations

from orchestrator.simulator import programs
from orchestrator.simulator.calls import CreateCall
from orchestrator.simulator.chance import waiting_time
from orchestrator.simulator.rules import HOLDS_MACHINES, MOVES, TOKEN_MEMORY
from orchestrator.simulator.scenario import Happening
from orchestrator.simulator.state import Host, Phase, Resource
from orchestrator.simulator.world import World

_UP = frozenset({Phase.READY})
_KEEPS_HOSTS = frozenset({Phase.CREATING, Phase.READY})


def make(world: World, call: CreateCall, name: str, digest: str) -> Resource:
    """Add a new resource in CREATING. Check the capacity first, and schedule its next phase with `arrive`."""
    state = world.state
    uid = f"{world.number():06d}"
    hosts = [Host(rank=rank, address=address) for rank, address in enumerate(_addresses(world, call.hosts))]
    resource = Resource(
        uid=uid,
        name=name,
        zone=call.zone,
        accelerator=call.accelerator,
        market=call.market,
        chips_per_host=call.chips_per_host,
        token=call.token,
        request=digest,
        labels=dict(call.labels),
        extra=dict(call.extra),
        created=state.now,
        hosts=hosts,
        changed=state.now,
        past=[(state.now, Phase.CREATING.value)],
    )
    state.resources[uid] = resource
    state.names[f"{call.zone}/{name}"] = uid
    if call.token:
        state.tokens[call.token] = (uid, None)
    return resource


def arrive(world: World, resource: Resource, seconds: float, phase: Phase, reason: str = "") -> None:
    """Schedule a change to this phase, void if another change comes first."""
    world.due(seconds, "arrive", resource.uid, resource.epoch, phase.value, reason)


def move(world: World, resource: Resource, phase: Phase, reason: str = "") -> None:
    """Change the phase now.

    Raises:
        RuntimeError: The move is not in the table, which is a bug of the simulator.
    """
    if phase not in MOVES[resource.phase]:
        raise RuntimeError(f"{resource.name} cannot go from {resource.phase} to {phase}")
    state = world.state
    before = resource.phase
    resource.phase, resource.reason, resource.changed = phase, reason, state.now
    resource.epoch += 1
    resource.past.append((state.now, phase.value))
    if phase in _UP:
        for host in resource.hosts:
            host.up = True
        _on_ready(world, resource, first=before is Phase.CREATING)
    elif phase not in _KEEPS_HOSTS:
        for host in resource.hosts:
            take_down(world, host)
    if phase is Phase.ABSENT:
        del state.names[f"{resource.zone}/{resource.name}"]
        if resource.token:
            state.tokens[resource.token] = (resource.uid, state.now + TOKEN_MEMORY)
    if resource.queued:
        from orchestrator.simulator.queue import node_moved

        node_moved(world, resource)


def came(world: World, uid: str, epoch: int, phase: str, reason: str) -> None:
    """Carry out a scheduled change of phase."""
    resource = world.state.resources[uid]
    if resource.epoch != epoch:
        return
    missing = [host.rank for host in resource.hosts if host.stuck]
    if phase == Phase.READY.value and missing:
        for host in resource.hosts:
            host.up = not host.stuck
        resource.reason = f"{len(resource.hosts) - len(missing)} of {len(resource.hosts)} hosts are up"
        return
    if phase == Phase.READY.value and resource.phase is Phase.MAINTENANCE:
        _new_addresses(world, resource)
    move(world, resource, Phase(phase), reason)


def take_down(world: World, host: Host) -> None:
    """Switch the machine off; the programs on it are lost."""
    host.up = False
    host.dies = None
    programs.lose(host, world.state.now)


def preempt(world: World, resource: Resource, reason: str) -> None:
    if Phase.PREEMPTED in MOVES[resource.phase]:
        move(world, resource, Phase.PREEMPTED, reason)


def begin_end(world: World, resource: Resource, slower: float = 0.0) -> None:
    """Move the resource to ENDING and schedule ABSENT; a stuck end resumes."""
    if resource.phase is Phase.ENDING:
        if resource.stuck_end:
            resource.stuck_end = False
            arrive(world, resource, world.span(world.scenario.durations.end) + slower, Phase.ABSENT)
        return
    move(world, resource, Phase.ENDING)
    arrive(world, resource, world.span(world.scenario.durations.end) + slower, Phase.ABSENT)


def maintain(world: World, resource: Resource) -> None:
    if resource.phase is Phase.READY:
        move(world, resource, Phase.MAINTENANCE, "maintenance by the provider")
        arrive(world, resource, world.span(world.scenario.durations.maintenance), Phase.READY)


def matches(happening: Happening, resource: Resource) -> bool:
    from fnmatch import fnmatchcase

    return not resource.foreign and fnmatchcase(resource.name, happening.name)


def _on_ready(world: World, resource: Resource, *, first: bool) -> None:
    for index, happening in enumerate(world.scenario.happenings):
        if happening.after_ready is not None and matches(happening, resource):
            world.due(happening.after_ready, "happen", resource.uid, index)
    if first and resource.market == "spot" and world.scenario.spot_life and not resource.foreign:
        life = waiting_time(world.scenario.spot_life, world.chance())
        notice = min(world.scenario.notice, life)
        world.due(life - notice, "notice", resource.uid, notice)


def _addresses(world: World, count: int) -> list[str]:
    """Return the lowest free addresses (rule address_is_used_again)."""
    taken = {host.address for other in world.living() if other.phase in HOLDS_MACHINES for host in other.hosts}
    found: list[str] = []
    number = 0
    while len(found) < count:
        number += 1
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        if address not in taken:
            found.append(address)
    return found


def _new_addresses(world: World, resource: Resource) -> None:
    """Give the hosts new addresses after maintenance (rule maintenance_restarts_the_hosts)."""
    for host, address in zip(resource.hosts, _addresses(world, len(resource.hosts)), strict=True):
        host.address = address
