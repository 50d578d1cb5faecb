"""What happens by itself between two requests: launches take addresses, ended ones give back what they held."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from orch_fronts.aws.ec2 import blocks, lives, network
from orch_fronts.aws.ec2.interfaces import addresses_of
from orch_fronts.aws.ec2.keys import with_keys
from orch_fronts.aws.ec2.visit import Visit, kept, region_of
from orch_fronts.aws.tables import zones_by_region
from orchestrator.simulator import lifecycle
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.scenario import ANY, Held, Scenario, Zone
from orchestrator.simulator.state import Phase, Resource
from orchestrator.slices import SliceState

_DIED = re.compile(r"host (\d+(?:, \d+)*)(?:, …)? of \d+ found dead")


def advance(cloud: SimulatedCloud, bodies: Bodies) -> None:
    """Bring the cloud, what EC2 keeps and the bodies to this moment. Raises OrchError of the bodies."""
    world = cloud.host_world()
    world.scenario = _known(world.scenario, blocks.held(cloud))
    for uid, resource in list(cloud.state.resources.items()):
        if "ec2" not in resource.extra:
            continue
        lives.pass_time(cloud, resource)
        if blocks.is_over(cloud, resource):
            kept(cloud, "causes")[uid] = "Server.CapacityBlockExpired"
            lifecycle.begin_end(world, resource)
        if resource.phase is Phase.ABSENT:
            _give_back(cloud, uid)
        elif uid not in kept(cloud, "in use"):
            _take(cloud, bodies, resource)
    _part(cloud)
    if not isinstance(bodies, NoBodies):
        _settle_bodies(cloud, bodies)


def _known(scenario: Scenario, more: tuple[Held, ...]) -> Scenario:
    """With the zones of all regions, whose names do not begin as the neutral cloud takes it, and with bought blocks."""
    full = _with_zones(scenario)
    missing = tuple(one for one in more if one not in full.reservations)
    return replace(full, reservations=(*full.reservations, *missing)) if missing else full


@lru_cache(maxsize=8)
def _with_zones(scenario: Scenario) -> Scenario:
    if not any(zone.name == ANY for zone in scenario.zones):
        return scenario
    named = {zone.name for zone in scenario.zones}
    more = tuple(
        Zone(zone, region) for region, zones in zones_by_region().items() for zone in zones if zone not in named
    )
    return replace(scenario, zones=(*scenario.zones, *more)) if more else scenario


def _take(cloud: SimulatedCloud, bodies: Bodies, resource: Resource) -> None:
    record: Mapping[str, Any] = resource.extra["ec2"]
    region = region_of(cloud, resource.zone)
    visit = Visit(cloud=cloud, bodies=bodies, region=region, operation="RunInstances", params={})
    interfaces: list[dict[str, Any]] = record["interfaces"]
    groups = sorted({group for one in interfaces for group in one["groups"]})
    held = {"region": region, "zone": resource.zone, "groups": groups, "placement": record["group"]}
    kept(cloud, "in use")[resource.uid] = held
    network.take(visit, resource.uid, resource.zone, len(resource.hosts), addresses_of(interfaces))


def _give_back(cloud: SimulatedCloud, uid: str) -> None:
    for kind in ("in use", "addresses of hosts", "places"):
        kept(cloud, kind).pop(uid, None)


def _part(cloud: SimulatedCloud) -> None:
    """Rule elastic_ip_outlives_the_instance."""
    for one in kept(cloud, "addresses").values():
        held = one["association"]
        if not held:
            continue
        resource = cloud.state.resources[held["uid"]]
        alone = kept(cloud, "alone").get(resource.uid, {}).get(str(held["rank"]), {})
        if resource.phase in (Phase.ENDING, Phase.ABSENT) or alone.get("state") == "terminated":
            one["association"] = None


def _settle_bodies(cloud: SimulatedCloud, bodies: Bodies) -> None:
    """Real hosts; one that has shut itself down is an instance that did."""
    looks = [with_keys(describe_resource(one)) for one in cloud.state.resources.values() if "ec2" in one.extra]
    bodies.sync_hosts(looks)
    for look in looks:
        if look.phase is not Phase.READY:
            continue
        for rank in bodies.take_power_requests(look):  # `shutdown -h now`, which is what the hosts of EC2 do
            lives.power_off(cloud, cloud.state.resources[look.uid], rank)
        view = bodies.view(look)
        if view.state is SliceState.READY and view.hosts[0].host.startswith("127."):
            kept(cloud, "places")[look.uid] = [[host.host, host.port] for host in view.hosts]
        died = _DIED.fullmatch(view.reason)
        resource = cloud.state.resources[look.uid]
        for rank in map(int, died[1].split(", ")) if died else ():
            if resource.hosts[rank].up:
                lives.power_off(cloud, resource, rank)
