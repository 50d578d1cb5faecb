"""Instance types: what the table of this front states, and for the others what a small machine would have."""

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
from orch_fronts.aws.tables import InstanceType, instance_types, zones_by_region
from orchestrator.simulator.scenario import ANY, Pool

_PLAIN_CARDS, _PLAIN_ENIS = 1, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """cards: network cards. enis: interfaces per card. efa: EFA interfaces in all; card0_efa: one of them on card 0."""

    cards: int = _PLAIN_CARDS
    enis: int = _PLAIN_ENIS
    efa: int = 0
    card0_efa: bool = False
    chips: int = 0
    vcpus: int = 0
    on_demand: bool = True
    capacity_block: bool = False


def limits_of(name: str) -> Limits:
    """Raises AwsRefusal for a type that botocore's model does not know. Rule unknown_type_is_refused."""
    known = instance_types().get(name)
    if known is None:
        if name not in _every_type():
            raise AwsRefusal("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        return Limits()
    return Limits(
        cards=known.cards,
        enis=known.interfaces,
        efa=known.efa,
        card0_efa=known.efa_on_card0,
        chips=known.device.count if known.device else 0,
        vcpus=known.vcpus,
        on_demand=known.on_demand,
        capacity_block="capacity-block" in known.usage,
    )


def is_offered(name: str, region: str) -> bool:
    """In the region. A type that is not in the table is offered everywhere."""
    known = instance_types().get(name)
    return known is None or region in known.zones


def is_offered_in(visit: Visit, name: str, zone: str) -> bool:
    """Rule type_is_offered_in_some_zones: where the scenario has pools they say it, else the table."""
    pools = _pools(visit, zone)
    return any(pool.accelerator in (name, ANY) for pool in pools) if pools else not is_missing_in(visit, name, zone)


def is_missing_in(visit: Visit, name: str, zone: str) -> bool:
    """By the table; a scenario's pools are asked when the machines are."""
    known = instance_types().get(name)
    if known is None or _pools(visit, zone) or zone not in zones_by_region().get(zone[:-1], ()):
        return False
    return not known.is_offered_in(zone)


def _pools(visit: Visit, zone: str) -> list[Pool]:
    return [pool for pool in visit.cloud.scenario.pools if pool.zone in (zone, ANY)]


def describe_types(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("InstanceTypes", ())]
    unknown = [one for one in asked if one not in instance_types() and one not in _every_type()]
    if unknown:
        words = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        raise AwsRefusal("InvalidInstanceType", words)
    here = [one for one in instance_types().values()
            if is_offered(one.name, visit.region) and (not asked or one.name in asked)]  # fmt: skip
    found, more = page(visit, chosen(visit, here, _type_facts, _TYPE_FILTERS))
    return {"InstanceTypes": [_shown(one) for one in found], **more}


def describe_offerings(visit: Visit) -> dict[str, Any]:
    """Rule type_is_offered_in_some_regions; a zone with pools offers only types that it has a pool of."""
    visit.ask()
    kind = str(visit.params.get("LocationType", "region"))
    offered: list[dict[str, str]] = []
    for name in instance_types():
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
    """Zones of the region that have the type."""
    return [zone for zone in visit.zones() if is_offered(name, visit.region) and is_offered_in(visit, name, zone)]


@cache
def _every_type() -> frozenset[str]:
    return frozenset(codec_of("ec2").model.shape_for("InstanceType").enum)


_TYPE_FILTERS = frozenset({"instance-type", "network-info.efa-supported", "supported-usage-class"})


def _type_facts(one: InstanceType) -> dict[str, list[str]]:
    return {
        "instance-type": [one.name],
        "network-info.efa-supported": ["true" if one.efa else "false"],
        "supported-usage-class": list(one.usage),
    }


def _offering_facts(one: dict[str, str]) -> dict[str, list[str]]:
    return {"instance-type": [one["InstanceType"]], "location": [one["Location"]]}


def _shown(one: InstanceType) -> dict[str, Any]:
    cards = [{"NetworkCardIndex": index, "MaximumNetworkInterfaces": one.interfaces}
             for index in range(one.cards)]  # fmt: skip
    network: dict[str, Any] = {
        "NetworkPerformance": one.network,
        "MaximumNetworkInterfaces": one.cards * one.interfaces,
        "MaximumNetworkCards": one.cards,
        "DefaultNetworkCardIndex": 0,
        "NetworkCards": cards,
        "EnaSupport": "required",
        "EfaSupported": one.efa > 0,
    }
    if one.efa:
        network["EfaInfo"] = {"MaximumEfaInterfaces": one.efa}
    shown: dict[str, Any] = {
        "InstanceType": one.name,
        "CurrentGeneration": True,
        "SupportedUsageClasses": list(one.usage),
        "SupportedRootDeviceTypes": ["ebs"],
        "VCpuInfo": {"DefaultVCpus": one.vcpus},
        "MemoryInfo": {"SizeInMiB": one.memory},
        "InstanceStorageSupported": one.storage,
        "NetworkInfo": network,
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
    }
    device = one.device
    if device is None:
        return shown
    memory = {"SizeInMiB": device.memory}
    if not device.cores:
        gpu = {"Name": device.name, "Manufacturer": "NVIDIA", "Count": device.count, "MemoryInfo": memory}
        return shown | {"GpuInfo": {"Gpus": [gpu]}}
    neuron = {"Name": device.name, "Count": device.count, "CoreInfo": {"Count": device.cores}, "MemoryInfo": memory}
    return shown | {"NeuronInfo": {"NeuronDevices": [neuron]}}
