"""Capacity checks: pools, quotas and reservations, counted from the existing resources at each check."""

from __future__ import annotations

from orchestrator.simulator.calls import ApiError, Code
from orchestrator.simulator.rules import HOLDS_MACHINES
from orchestrator.simulator.scenario import ANY, Held, Pool, Quota
from orchestrator.simulator.state import Queued, QueuePhase
from orchestrator.simulator.world import World

RESERVED = "reservation:"


def amount(unit: str, hosts: int, chips_per_host: int) -> int:
    """Return how much of a pool these hosts take; a host without chips counts as one."""
    return hosts if unit == "hosts" else hosts * max(1, chips_per_host)


def pool_key(zone: str, accelerator: str, market: str) -> str:
    return f"{zone}/{accelerator}/{market}"


def size(world: World, pool: Pool) -> int:
    """Return the pool's current size: the scenario's number, or the one that an event has set."""
    return world.state.capacity.get(pool_key(pool.zone, pool.accelerator, pool.market), pool.amount)


def used_of_pool(world: World, pool: Pool) -> int:
    return sum(
        amount(pool.unit, len(resource.hosts), resource.chips_per_host)
        for resource in world.living()
        if resource.phase in HOLDS_MACHINES
        and not resource.market.startswith(RESERVED)
        and pool.zone in (resource.zone, ANY)
        and pool.accelerator in (resource.accelerator, ANY)
        and pool.market in (resource.market, ANY)
    )


def used_of_reservation(world: World, held: Held) -> int:
    return sum(
        amount(held.unit, len(resource.hosts), resource.chips_per_host)
        for resource in world.living()
        if resource.phase in HOLDS_MACHINES and resource.market == RESERVED + held.name
    )


def used_of_quota(world: World, quota: Quota) -> int:
    """Return the quota in use, suspended requests included (rule suspended_queue_request_holds_quota)."""
    living = sum(
        amount(quota.unit, len(resource.hosts), resource.chips_per_host)
        for resource in world.living()
        if resource.phase in HOLDS_MACHINES
        and world.scenario.region(resource.zone) == quota.region
        and quota.accelerator in (resource.accelerator, ANY)
        and quota.market in (resource.market, ANY)
    )
    return living + sum(_suspended(world, quota, queued) for queued in world.state.queued.values())


def check_quota(world: World, zone: str, accelerator: str, market: str, hosts: int, chips_per_host: int) -> None:
    """Check that the hosts fit into every quota.

    Raises:
        ApiError: QUOTA.
    """
    region = world.scenario.region(zone)
    for quota in world.scenario.quotas:
        if quota.region != region or quota.accelerator not in (accelerator, ANY) or quota.market not in (market, ANY):
            continue
        need, used = amount(quota.unit, hosts, chips_per_host), used_of_quota(world, quota)
        if used + need > quota.amount:
            words = f"{need} {quota.unit} of {accelerator} asked, {used} of {quota.amount} in use in {region}"
            raise ApiError(Code.QUOTA, words)


def check_room(world: World, zone: str, accelerator: str, market: str, hosts: int, chips_per_host: int) -> None:
    """Check that the zone or reservation has free machines for the hosts.

    Raises:
        ApiError: NO_CAPACITY, NOT_OFFERED, or INVALID for an unknown reservation.
    """
    if market.startswith(RESERVED):
        _check_reservation(world, zone, accelerator, market.removeprefix(RESERVED), hosts, chips_per_host)
        return
    here = [pool for pool in world.scenario.pools if pool.zone in (zone, ANY)]
    fitting = [pool for pool in here if pool.accelerator in (accelerator, ANY) and pool.market in (market, ANY)]
    if here and not fitting:
        raise ApiError(Code.NOT_OFFERED, f"{zone} has no {accelerator} {market}")
    for pool in fitting:
        need, free = amount(pool.unit, hosts, chips_per_host), size(world, pool) - used_of_pool(world, pool)
        if need > free:
            words = f"{zone} has {max(0, free)} {pool.unit} of {accelerator} {market} now, {need} asked"
            raise ApiError(Code.NO_CAPACITY, words)


def _check_reservation(world: World, zone: str, accelerator: str, name: str, hosts: int, chips_per_host: int) -> None:
    held = next((held for held in world.scenario.reservations if held.name == name and held.zone == zone), None)
    if held is None or held.accelerator not in (accelerator, ANY):
        raise ApiError(Code.INVALID, f"{zone} has no reservation {name} of {accelerator}")
    free = held.amount - used_of_reservation(world, held)
    if amount(held.unit, hosts, chips_per_host) > free:
        raise ApiError(Code.NO_CAPACITY, f"reservation {name} has {free} {held.unit} left")


def _suspended(world: World, quota: Quota, queued: Queued) -> int:
    node = queued.node  # its further nodes are of the same kind
    if queued.phase is not QueuePhase.SUSPENDED or queued.gone or world.scenario.region(queued.zone) != quota.region:
        return 0
    if quota.accelerator not in (node["accelerator"], ANY) or quota.market not in (node["market"], ANY):
        return 0
    return sum(amount(quota.unit, int(each["hosts"]), int(each["chips_per_host"])) for each in queued.nodes)
