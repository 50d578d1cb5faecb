"""Regions, zones, and the default VPC with a default subnet in each zone that every account has in every region.

Source: "Default VPCs" (Amazon VPC User Guide, read November 2026): 172.31.0.0/16, a /20 in each zone, whose first four
addresses and last one are AWS's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any, cast

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, page, tag_facts, tag_list
from orch_fronts.aws.ec2.tags import now_of
from orch_fronts.aws.ec2.visit import Visit, made_id, zones_of
from orch_fronts.aws.ec2.words import wrong_value
from orch_fronts.aws.tables import zones_by_region
from orchestrator.simulator.scenario import ANY

CIDR = "172.31.0.0/16"
ROOM = 4091  # addresses of a /20 that machines may have
_FIRST = 4


def vpc_id(region: str) -> str:
    return made_id("vpc", region)


def subnet_id(zone: str) -> str:
    return made_id("subnet", zone)


def zone_id(visit: Visit, zone: str) -> str:
    """us-east-1a is use1-az1 here; in a real account the letters are shuffled."""
    area, side, number = visit.region.split("-")[-3:] if visit.region.count("-") >= 2 else (visit.region, "", "")
    return f"{area}{side[:1]}{number}-az{visit.zones().index(zone) + 1}"


def zone_of_subnet(visit: Visit, name: str) -> str:
    """Raises AwsRefusal."""
    for zone in visit.zones():
        if subnet_id(zone) == name:
            return zone
    raise AwsRefusal("InvalidSubnetID.NotFound", f"The subnet ID '{name}' does not exist")


def describe_regions(visit: Visit) -> dict[str, Any]:
    visit.ask()
    known = regions_of(visit)
    asked = [str(one) for one in visit.params.get("RegionNames", ())]
    unknown = [one for one in asked if one not in known]
    if unknown:
        raise wrong_value(f"Invalid region name: {unknown[0]}")
    found = [{"RegionName": one, "Endpoint": f"ec2.{one}.amazonaws.com", "OptInStatus": "opt-in-not-required"}
             for one in asked or known]  # fmt: skip
    return {"Regions": chosen(visit, found, lambda one: {"region-name": [one["RegionName"]]}, _REGION_FILTERS)}


def regions_of(visit: Visit) -> list[str]:
    """Those of the table where the scenario takes any zone, else those that it names."""
    zones = visit.cloud.scenario.zones
    return sorted(zones_by_region() if any(zone.name == ANY for zone in zones) else {zone.region for zone in zones})


def describe_zones(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("ZoneNames", ())]
    unknown = [one for one in asked if one not in visit.zones()]
    if unknown:
        raise wrong_value(f"Invalid availability zone: [{unknown[0]}]")
    found = [
        {
            "ZoneName": zone,
            "ZoneId": zone_id(visit, zone),
            "RegionName": visit.region,
            "State": "available",
            "OptInStatus": "opt-in-not-required",
            "ZoneType": "availability-zone",
        }
        for zone in asked or visit.zones()
    ]
    return {"AvailabilityZones": chosen(visit, found, _zone_facts, frozenset(_zone_facts(found[0])))}


def describe_vpcs(visit: Visit) -> dict[str, Any]:
    visit.ask()
    mine = vpc_id(visit.region)
    for name in visit.params.get("VpcIds", ()):
        if name != mine:
            raise AwsRefusal("InvalidVpcID.NotFound", f"The vpc ID '{name}' does not exist")
    vpc = {
        "VpcId": mine,
        "State": "available",
        "CidrBlock": CIDR,
        "IsDefault": True,
        "OwnerId": visit.account,
        "InstanceTenancy": "default",
        "Tags": tag_list(now_of(visit, mine, {})),
    }
    names = frozenset({"vpc-id", "is-default", "isDefault", "state", "cidr", "tag-key"})
    return {"Vpcs": chosen(visit, [vpc], lambda one: _vpc_facts(visit, one), names)}


def describe_subnets(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("SubnetIds", ())]
    for name in asked:
        zone_of_subnet(visit, name)
    every = [_subnet(visit, zone) for zone in zones_of(visit.cloud, visit.region)]
    wanted = [one for one in every if not asked or one["SubnetId"] in asked]
    found, more = page(visit, chosen(visit, wanted, lambda one: _subnet_facts(visit, one), _SUBNET_FILTERS))
    return {"Subnets": found, **more}


# --- addresses in a subnet, kept as numbers within it ---------------------------------------------------


def address(visit: Visit, zone: str, number: int) -> str:
    return str(cidr_of(visit, zone)[number])


def cidr_of(visit: Visit, zone: str) -> IPv4Network:
    index = zones_of(visit.cloud, visit.region).index(zone)
    base = IPv4Address(int(IPv4Network(CIDR).network_address) + (index << 12))
    return IPv4Network(f"{base}/20")


def used(visit: Visit, zone: str) -> set[int]:
    """Numbers in use. kept "addresses of hosts": by uid the zone and, by rank, the numbers of each host."""
    given = visit.kept("addresses of hosts").values()
    return {number for one in given if one["zone"] == zone for host in one["hosts"] for number in host}


def take(visit: Visit, uid: str, zone: str, hosts: int, each: int) -> None:
    """Give every host so many addresses: the lowest free ones."""
    taken = used(visit, zone)
    free = iter(number for number in range(_FIRST, _FIRST + ROOM) if number not in taken)
    given = [[number for number, _ in zip(free, range(each), strict=False)] for _ in range(hosts)]
    visit.kept("addresses of hosts")[uid] = {"zone": zone, "hosts": given}


def of_host(visit: Visit, uid: str, rank: int) -> list[str]:
    """Its addresses, in the order of its interfaces that have one; none when it has ended."""
    kept: Mapping[str, Any] | None = visit.kept("addresses of hosts").get(uid)
    if kept is None:
        return []
    numbers = cast(Sequence[Sequence[int]], kept["hosts"])[rank]
    return [address(visit, str(kept["zone"]), number) for number in numbers]


_REGION_FILTERS = frozenset({"region-name"})
_SUBNET_FILTERS = frozenset(
    {"availability-zone", "availabilityZone", "availability-zone-id", "default-for-az", "defaultForAz", "state"}
    | {"subnet-id", "vpc-id", "map-public-ip-on-launch", "tag-key", "cidr-block"}
)


def _subnet(visit: Visit, zone: str) -> dict[str, Any]:
    name = subnet_id(zone)
    return {
        "SubnetId": name,
        "SubnetArn": visit.arn("subnet", name),
        "VpcId": vpc_id(visit.region),
        "CidrBlock": str(cidr_of(visit, zone)),
        "AvailabilityZone": zone,
        "AvailabilityZoneId": zone_id(visit, zone),
        "AvailableIpAddressCount": ROOM - len(used(visit, zone)),
        "DefaultForAz": True,
        "MapPublicIpOnLaunch": True,
        "State": "available",
        "OwnerId": visit.account,
        "Tags": tag_list(now_of(visit, name, {})),
    }


def _zone_facts(one: dict[str, str]) -> dict[str, list[str]]:
    return {
        "zone-name": [one["ZoneName"]],
        "zone-id": [one["ZoneId"]],
        "region-name": [one["RegionName"]],
        "state": [one["State"]],
        "zone-type": [one["ZoneType"]],
        "opt-in-status": [one["OptInStatus"]],
    }


def _vpc_facts(visit: Visit, one: dict[str, Any]) -> dict[str, Sequence[str]]:
    plain = {"vpc-id": [one["VpcId"]], "is-default": ["true"], "isDefault": ["true"], "state": [one["State"]]}
    return plain | {"cidr": [CIDR]} | tag_facts(now_of(visit, one["VpcId"], {}))


def _subnet_facts(visit: Visit, one: dict[str, Any]) -> dict[str, Sequence[str]]:
    facts = {
        "availability-zone": [one["AvailabilityZone"]],
        "availabilityZone": [one["AvailabilityZone"]],
        "availability-zone-id": [one["AvailabilityZoneId"]],
        "default-for-az": ["true"],
        "defaultForAz": ["true"],
        "map-public-ip-on-launch": ["true"],
        "state": [one["State"]],
        "subnet-id": [one["SubnetId"]],
        "vpc-id": [one["VpcId"]],
        "cidr-block": [one["CidrBlock"]],
    }
    return facts | tag_facts(now_of(visit, one["SubnetId"], {}))
