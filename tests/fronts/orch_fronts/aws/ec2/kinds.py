"""Instance types: what the catalogue knows of them, and for the others what a small machine would have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.codec import codec_of
from orch_fronts.aws.ec2.filters import chosen, page
from orch_fronts.aws.ec2.network import zone_id
from orch_fronts.aws.ec2.visit import Visit
from orchestrator.catalog.ec2 import load_instances
from orchestrator.catalog.machines import Ec2Instance

_PLAIN_CARDS, _PLAIN_ENIS = 1, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """cards: network cards. enis: interfaces per card. efa: EFA interfaces in all; card0_efa: one of them on card 0."""

    cards: int = _PLAIN_CARDS
    enis: int = _PLAIN_ENIS
    efa: int = 0
    card0_efa: bool = False
    chips: int = 0
    on_demand: bool = True
    capacity_block: bool = False


def limits_of(name: str) -> Limits:
    """Raises AwsRefusal for a type that botocore's model does not know. Rule unknown_type_is_refused."""
    known = load_instances().get(name)
    if known is None:
        if name not in _every_type():
            raise AwsRefusal("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        return Limits()
    return Limits(
        cards=known.network_cards,
        enis=known.enis_per_card,
        efa=known.efa_max,
        card0_efa=known.efa_on_card0,
        chips=known.chips_per_host,
        on_demand=known.on_demand,
        capacity_block=known.capacity_block,
    )


def is_offered(name: str, region: str) -> bool:
    """In the region. A type whose regions are not recorded is offered in all of them."""
    known = load_instances().get(name)
    return known is None or not known.regions or region in known.regions


def describe_types(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("InstanceTypes", ())]
    unknown = [one for one in asked if one not in load_instances() and one not in _every_type()]
    if unknown:
        words = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        raise AwsRefusal("InvalidInstanceType", words)
    here = [one for one in load_instances().values()
            if is_offered(one.name, visit.region) and (not asked or one.name in asked)]  # fmt: skip
    found, more = page(visit, chosen(visit, here, _type_facts, _TYPE_FILTERS))
    return {"InstanceTypes": [_shown(one) for one in found], **more}


def describe_offerings(visit: Visit) -> dict[str, Any]:
    """Rule type_is_offered_in_some_regions; a zone with pools offers only types that it has a pool of."""
    visit.ask()
    kind = str(visit.params.get("LocationType", "region"))
    offered: list[dict[str, str]] = []
    for name in load_instances():
        zones = list(zones_offering(visit, name))
        places = {"region": [visit.region] if zones else [], "availability-zone": zones}
        offered += [
            {"InstanceType": name, "LocationType": kind, "Location": place}
            for place in places.get(kind, [zone_id(visit, one) for one in zones])
        ]
    facts = chosen(visit, offered, _offering_facts, frozenset({"instance-type", "location"}))
    found, more = page(visit, facts)
    return {"InstanceTypeOfferings": found, **more}


def zones_offering(visit: Visit, name: str) -> Iterable[str]:
    """Zones of the region that have the type: all of them, or those for which the scenario has a pool of it."""
    for zone in visit.zones():
        pools = [pool for pool in visit.cloud.scenario.pools if pool.zone in (zone, "*")]
        if is_offered(name, visit.region) and (not pools or any(pool.accelerator in (name, "*") for pool in pools)):
            yield zone


@cache
def _every_type() -> frozenset[str]:
    return frozenset(codec_of("ec2").model.shape_for("InstanceType").enum)


_TYPE_FILTERS = frozenset({"instance-type", "network-info.efa-supported", "supported-usage-class"})


def _type_facts(one: Ec2Instance) -> dict[str, list[str]]:
    return {
        "instance-type": [one.name],
        "network-info.efa-supported": ["true" if one.efa_max else "false"],
        "supported-usage-class": _usage_classes(one),
    }


def _offering_facts(one: dict[str, str]) -> dict[str, list[str]]:
    return {"instance-type": [one["InstanceType"]], "location": [one["Location"]]}


def _usage_classes(one: Ec2Instance) -> list[str]:
    """p5e and trn2 say on-demand although there is no price for it (facts of the API, May 2026)."""
    return ["on-demand", "spot", *(["capacity-block"] if one.capacity_block else [])]


def _shown(one: Ec2Instance) -> dict[str, Any]:
    cards = [{"NetworkCardIndex": index, "MaximumNetworkInterfaces": one.enis_per_card}
             for index in range(one.network_cards)]  # fmt: skip
    network: dict[str, Any] = {
        "NetworkPerformance": f"{one.network_gbps:g} Gigabit",
        "MaximumNetworkInterfaces": one.network_cards * one.enis_per_card,
        "MaximumNetworkCards": one.network_cards,
        "DefaultNetworkCardIndex": 0,
        "NetworkCards": cards,
        "EnaSupport": "required",
        "EfaSupported": one.efa_max > 0,
    }
    if one.efa_max:
        network["EfaInfo"] = {"MaximumEfaInterfaces": one.efa_max}
    shown: dict[str, Any] = {
        "InstanceType": one.name,
        "CurrentGeneration": True,
        "SupportedUsageClasses": _usage_classes(one),
        "SupportedRootDeviceTypes": ["ebs"],
        "VCpuInfo": {"DefaultVCpus": one.vcpus},
        "MemoryInfo": {"SizeInMiB": int(one.ram_gib * 1024)},
        "InstanceStorageSupported": bool(one.local_nvme),
        "NetworkInfo": network,
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
    }
    if not one.chips:
        return shown
    memory = {"SizeInMiB": int(one.hbm_gib_per_chip * 1024)}
    if one.backends[0] == "cuda":
        gpu = {"Name": one.chip, "Manufacturer": "NVIDIA", "Count": one.chips_per_host, "MemoryInfo": memory}
        return shown | {"GpuInfo": {"Gpus": [gpu]}}
    device = {"Name": one.chip, "Count": one.chips_per_host, "CoreInfo": {"Count": one.cores_per_chip}}
    return shown | {"NeuronInfo": {"NeuronDevices": [device | {"MemoryInfo": memory}]}}
