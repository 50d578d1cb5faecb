"""Which permissions a call of EC2 needs, and on what.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2" (read November 2026):
the resource types of each action, and that a create with tags needs ec2:CreateTags too, with ec2:CreateAction. Calls
that only read know no resources. Modelled: of what is not there nothing is asked, so that EC2 itself says so; the role
behind an instance profile has the profile's name; a spot request always asks for the service-linked role, as the first
one of an account does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orch_fronts.aws.calls import ACCOUNT, Need

Tags = Mapping[str, str]
TagsOf = Callable[[str], Tags | None]
"""The tags of what has this id (or, for a placement group, this name); None for what is not there."""

_CREATED: Mapping[str, tuple[str, ...]] = {  # what a call creates always; further: _also_created
    "AllocateAddress": ("elastic-ip",),
    "CreatePlacementGroup": ("placement-group",),
    "CreateSecurityGroup": ("security-group",),
    "RunInstances": ("instance", "network-interface", "volume"),
}
_USED: Mapping[str, tuple[tuple[str, str], ...]] = {  # (parameter, type of the resources that it names)
    "AssociateAddress": (
        ("AllocationId", "elastic-ip"),
        ("NetworkInterfaceId", "network-interface"),
        ("InstanceId", "instance"),
    ),
    "AuthorizeSecurityGroupEgress": (("GroupId", "security-group"),),
    "AuthorizeSecurityGroupIngress": (("GroupId", "security-group"),),
    "CancelSpotInstanceRequests": (("SpotInstanceRequestIds", "spot-instances-request"),),
    "CreateSecurityGroup": (("VpcId", "vpc"),),
    "DeletePlacementGroup": (("GroupName", "placement-group"),),
    "DeleteSecurityGroup": (("GroupId", "security-group"),),
    "DisassociateAddress": (("AssociationId", "elastic-ip"),),
    "ReleaseAddress": (("AllocationId", "elastic-ip"),),
    "RevokeSecurityGroupEgress": (("GroupId", "security-group"),),
    "RevokeSecurityGroupIngress": (("GroupId", "security-group"),),
    "RunInstances": (("ImageId", "image"), ("SubnetId", "subnet"), ("SecurityGroupIds", "security-group")),
    "StartInstances": (("InstanceIds", "instance"),),
    "StopInstances": (("InstanceIds", "instance"),),
    "TerminateInstances": (("InstanceIds", "instance"),),
}
_ON_ALL = frozenset({"PurchaseCapacityBlock"})  # modelled: asked on "*"; the tags of the new reservation on itself
_TYPES: Mapping[str, str] = {  # of resources, by the beginning of their ids
    "cr": "capacity-reservation",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "i": "instance",
    "pg": "placement-group",
    "sg": "security-group",
    "sir": "spot-instances-request",
    "vol": "volume",
}
_SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"


def ec2_needs(operation: str, params: Mapping[str, Any], region: str, tags_of: TagsOf) -> tuple[Need, ...]:
    """params: as the service model names them, typed ({"InstanceIds": ["i-1"]})."""
    action = f"ec2:{operation}"
    if operation in ("CreateTags", "DeleteTags"):
        sent, names = _tags(params.get("Tags", ())), params.get("Resources", ())
        kinds = [(_TYPES.get(name.partition("-")[0], "*"), name) for name in names]
        return tuple(_on(action, region, kinds, tags_of, sent))
    used = [*_named(operation, params), *_also_used(params)] if operation in _USED else []
    needs = list(_on(action, region, used, tags_of, {}))
    needs += [Need(action=action)] if operation in _ON_ALL else []
    sent_by = {spec["ResourceType"]: _tags(spec.get("Tags", ())) for spec in params.get("TagSpecifications", ())}
    created = (*_CREATED.get(operation, ()), *_also_created(operation, params))
    for kind in created:
        arn = _arn(region, kind, params["GroupName"] if kind == "placement-group" else "*")
        needs.append(Need(action=action, resource=arn, request_tags=sent_by.get(kind, {})))
    for kind, sent in sent_by.items():
        context = {"ec2:CreateAction": operation}
        needs.append(
            Need(action="ec2:CreateTags", resource=_arn(region, kind, "*"), request_tags=sent, context=context)
        )
    return (*needs, *_roles(params)) if needs or used else (Need(action=action),)


def _on(action: str, region: str, things: Iterable[tuple[str, str]], tags_of: TagsOf, sent: Tags) -> Iterable[Need]:
    for kind, name in things:
        tags = tags_of(name)
        if tags is not None:
            yield Need(action=action, resource=_arn(region, kind, name), resource_tags=tags, request_tags=sent)


def _named(operation: str, params: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for parameter, kind in _USED[operation]:
        value = params.get(parameter, ())
        for name in (value,) if isinstance(value, str) else value:
            yield kind, name


def _also_used(params: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What RunInstances names further inside; other calls have no such parameters."""
    found: dict[tuple[str, str], None] = {}
    for interface in params.get("NetworkInterfaces", ()):
        if subnet := interface.get("SubnetId"):
            found["subnet", subnet] = None
        found |= dict.fromkeys(("security-group", group) for group in interface.get("Groups", ()))
    if group := params.get("Placement", {}).get("GroupName"):
        found["placement-group", group] = None
    target = params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if reservation := target.get("CapacityReservationId"):
        found["capacity-reservation", reservation] = None
    return found


def _also_created(operation: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    return ("spot-instances-request",) if operation == "RunInstances" and _is_spot(params) else ()


def _roles(params: Mapping[str, Any]) -> Iterable[Need]:
    profile = params.get("IamInstanceProfile", {})
    if name := profile.get("Name") or profile.get("Arn", "").rpartition("/")[2]:
        context = {"iam:PassedToService": "ec2.amazonaws.com"}
        yield Need(action="iam:PassRole", resource=f"arn:aws:iam::{ACCOUNT}:role/{name}", context=context)
    if _is_spot(params):
        context = {"iam:AWSServiceName": "spot.amazonaws.com"}
        yield Need(
            action="iam:CreateServiceLinkedRole", resource=f"arn:aws:iam::{ACCOUNT}:{_SPOT_ROLE}", context=context
        )


def _is_spot(params: Mapping[str, Any]) -> bool:
    return bool(params.get("InstanceMarketOptions", {}).get("MarketType") == "spot")


def _arn(region: str, kind: str, name: str) -> str:
    return f"arn:aws:ec2:{region}:{'' if kind == 'image' else ACCOUNT}:{kind}/{name}"


def _tags(pairs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {pair["Key"]: pair.get("Value", "") for pair in pairs}
