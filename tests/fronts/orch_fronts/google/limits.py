"""What Google refuses before it looks for machines: zones, rates, quotas of chips, addresses and instances.

Zones hold always, unless the scenario has pools for the zone, which then say what it sells. The quotas are those of a
new project and hold with `new_account` in the scenario; what Service Usage lists is then the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch_fronts.google.answering import refusal
from orch_fronts.google.compute.types import plain_types
from orch_fronts.google.grants import Limit
from orch_fronts.google.tables import (
    RegionalQuota,
    Slice,
    TpuQuota,
    all_zones,
    closed_zones,
    find_slice,
    generations,
    quota_of,
    regional_quotas,
    tpu_quotas,
)
from orchestrator.simulator.capacity import RESERVED
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.rules import HOLDS_MACHINES
from orchestrator.simulator.scenario import ANY, Scenario
from orchestrator.simulator.state import Resource

_MINUTE = 60.0
_CREATES = frozenset({"create", "queue"})


def check_zone(cloud: SimulatedCloud, project: str, zone: str) -> None:
    """Raises Refusal. Rule zone_that_is_not_there_is_denied; a new project may not use every zone."""
    if not cloud.scenario.region(zone) or (cloud.scenario.new_account and zone in closed_zones()):
        raise refusal("tpu-location-policy-violated", zone=zone, project=project)


def check_type(cloud: SimulatedCloud, zone: str, machine: Slice) -> None:
    """Raises Refusal. Rule type_is_sold_in_some_zones."""
    if not has_pools(cloud, zone) and zone in all_zones() and not generations()[machine.generation].is_in(zone):
        raise refusal("tpu-type-not-in-zonal-configurations", type=machine.name, zone=zone)


def has_pools(cloud: SimulatedCloud, zone: str) -> bool:
    """Return whether the scenario says what the zone has."""
    return any(pool.zone in (zone, ANY) for pool in cloud.scenario.pools)


def check_rate(cloud: SimulatedCloud) -> None:
    """Raises Refusal. Rule creates_have_a_rate."""
    most = cloud.scenario.creates_per_minute
    lately = [call for call in cloud.state.calls if call.op in _CREATES and call.at > cloud.state.now - _MINUTE]
    if most and len(lately) >= most:
        raise refusal("tpu-create-node-per-minute")


def check_tpu_quota(cloud: SimulatedCloud, zone: str, machine: Slice, nodes: int, market: str) -> None:
    """Raises Refusal. Rule quota_is_by_type_and_size."""
    if not cloud.scenario.new_account or market.startswith(RESERVED):
        return
    quota = quota_of(machine.generation, machine.size, _quota_market(market))
    if quota is not None and _used(cloud, quota, zone) + machine.size * nodes > quota.value:
        raise refusal("tpu-serving-quota-v5e", quota=quota.id, limit=quota.value, zone=zone)


def exceeded(cloud: SimulatedCloud, zone: str, need: Mapping[str, int]) -> RegionalQuota | None:
    """Return the limit of the region that hosts do not fit into. Rule hosts_take_addresses_and_instances."""
    if not cloud.scenario.new_account:
        return None
    region = cloud.scenario.region(zone)
    living = [one for one in cloud.state.resources.values() if one.phase in HOLDS_MACHINES]
    for name, more in need.items():
        quota = regional_quotas()[name]
        mine = [one for one in living if quota.everywhere or cloud.scenario.region(one.zone) == region]
        if more and sum(needs_of(one).get(name, 0) for one in mine) + more > quota.value:
            return quota
    return None


def node_needs(machine: Slice, nodes: int, node: Mapping[str, Any]) -> dict[str, int]:
    """Return what nodes take of the limits of Compute Engine."""
    configs: list[Mapping[str, Any]] = [*node.get("networkConfigs", ())] or [node.get("networkConfig", {})]
    addresses = sum(bool(config.get("enableExternalIps")) for config in configs)
    hosts = machine.hosts * nodes
    return {"IN_USE_ADDRESSES": hosts * addresses, "INSTANCES": hosts}


def instance_needs(kind: str, hosts: int, properties: Mapping[str, Any]) -> dict[str, int]:
    """Return what instances of a type take. Only E2 counts against CPUS; which other limits N2 has is not modelled."""
    addresses = sum(bool(one.get("accessConfigs")) for one in properties.get("networkInterfaces", ()))
    found = {"IN_USE_ADDRESSES": hosts * addresses, "INSTANCES": hosts}
    plain = plain_types().get(kind)
    if plain is not None:
        found |= {"GPUS_ALL_REGIONS": plain.gpus * hosts, "CPUS": plain.vcpus * hosts * kind.startswith("e2-")}
    return found


def needs_of(resource: Resource) -> dict[str, int]:
    compute: Mapping[str, Any] = resource.extra.get("compute", {})
    if compute:
        return instance_needs(resource.accelerator, len(resource.hosts), compute["properties"])
    machine = find_slice(str(resource.extra.get("node", {}).get("acceleratorType", "")))
    return node_needs(machine, 1, resource.extra["node"]) if machine else {"INSTANCES": len(resource.hosts)}


def listed(scenario: Scenario) -> tuple[Limit, ...]:
    """Return the quotas of a new project as Service Usage lists them; none where they do not hold."""
    if not scenario.new_account:
        return ()
    tpus = (Limit(one.metric, one.value) for one in tpu_quotas())
    regional = (Limit(one.metric, one.value, service="compute.googleapis.com") for one in regional_quotas().values())
    return (*tpus, *regional)


def _quota_market(market: str) -> str:
    """Flex-start takes the preemptible quota first ("Provisioning models", Compute Engine documentation, 2026)."""
    return "spot" if market in ("spot", "flex-start") else market


def _used(cloud: SimulatedCloud, quota: TpuQuota, zone: str) -> int:
    """Return what counts now, suspended and failed requests included (rule suspended_queue_request_holds_quota)."""
    return sum(size for name, size, market in _holding(cloud, zone) if quota_of(name, size, market) is quota)


def _holding(cloud: SimulatedCloud, zone: str) -> Iterator[tuple[str, int, str]]:
    for one in cloud.state.resources.values():
        if one.zone == zone and one.phase in HOLDS_MACHINES and "compute" not in one.extra and not one.queued:
            yield (
                one.accelerator,
                _size(one.accelerator, len(one.hosts) * one.chips_per_host),
                _quota_market(one.market),
            )
    for queued in cloud.state.queued.values():
        if queued.zone == zone and not queued.gone:
            for node in queued.nodes:
                size = _size(str(node["accelerator"]), int(node["hosts"]) * int(node["chips_per_host"]))
                yield str(node["accelerator"]), size, _quota_market(str(node["market"]))


def _size(generation: str, chips: int) -> int:
    found = generations().get(generation)
    return chips * found.cores_per_chip if found is not None and found.counts == "cores" else chips
