"""The security group and the placement group of a slice, from their making to their end. Pure.

EFA wants a group that admits all traffic from itself and to itself; that all may go out is not enough (EC2 User Guide,
"Get started with EFA", 2026; aws-ofi-nccl issue 663). What neither has is a token, so both have the slice's name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from orchestrator.providers.aws.access import Access
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.aws.tags import SLICE, by_tag, specification, where
from orchestrator.providers.aws.unknowns import GROUP, VPC
from orchestrator.slices import Request, SliceSpec
from orchestrator.values import Text

SSH = 22
OPENED = "SSH of orch"  # how the descriptions of our rules for SSH begin


def name_of(slice_name: str) -> str:
    """What both groups are called."""
    return f"orch-{slice_name}"


def security_requests(place: Place, spec: SliceSpec, access: Access) -> tuple[Request, ...]:
    """Make it, let its members talk to each other, and let SSH in where the way to the hosts needs that."""
    name = name_of(spec.name)
    made: dict[str, object] = {
        "GroupName": name,
        "Description": f"Hosts of the orch slice {spec.name}",
        "VpcId": Text.of(VPC),
        "TagSpecifications": specification(spec, "security-group"),
    }
    inside: dict[str, object] = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": Text.of(GROUP)}]}
    ssh = [_ssh(access)] if access.sources else []
    group: dict[str, object] = {"GroupId": Text.of(GROUP)}
    return (
        request(place, "CreateSecurityGroup", name, made, gives=((GROUP, "GroupId"),)),
        request(place, "AuthorizeSecurityGroupIngress", name, group | {"IpPermissions": [inside, *ssh]}),
        request(place, "AuthorizeSecurityGroupEgress", name, group | {"IpPermissions": [inside]}),
    )


def placement_request(place: Place, spec: SliceSpec) -> Request:
    name = name_of(spec.name)
    made: dict[str, object] = {
        "GroupName": name,
        "Strategy": "cluster",
        "TagSpecifications": specification(spec, "placement-group"),
    }
    return request(place, "CreatePlacementGroup", name, made)


def security_end(place: Place, slice_name: str) -> Request:
    """EC2 refuses it (DependencyViolation) as long as a machine is in the group."""
    name = name_of(slice_name)
    mine: dict[str, object] = {"Filters": [by_tag(SLICE, slice_name), where("group-name", name)]}
    look = request(place, "DescribeSecurityGroups", name, mine, gives=((GROUP, "SecurityGroups[0].GroupId"),))
    ended = request(place, "DeleteSecurityGroup", name, {"GroupId": Text.of(GROUP)}, why="when no machine is in it")
    return replace(ended, before=(look,))


def placement_end(place: Place, slice_name: str) -> Request:
    """EC2 refuses it (InvalidPlacementGroup.InUse) as long as a machine is in the group."""
    name = name_of(slice_name)
    return request(place, "DeletePlacementGroup", name, {"GroupName": name}, why="when no machine is in it")


def _ssh(access: Access) -> dict[str, object]:
    found: dict[str, object] = {"IpProtocol": "tcp", "FromPort": SSH, "ToPort": SSH}
    for source in access.sources:
        six = ":" in source.preview()
        ranges = cast(list[object], found.setdefault("Ipv6Ranges" if six else "IpRanges", []))
        ranges.append({"CidrIpv6" if six else "CidrIp": source, "Description": OPENED})
    return found
