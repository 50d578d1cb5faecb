"""The network interfaces of a launch: what may be asked for, and what each machine then has.

Source: "Maximize network bandwidth on Amazon EC2 instances with multiple network cards" and "Elastic Fabric Adapter"
(EC2 User Guide, read November 2026); which codes are only modelled, rules.py says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2 import groups
from orch_fronts.aws.ec2.kinds import Limits
from orch_fronts.aws.ec2.network import subnet_id, zone_of_subnet
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import wrong_combination, wrong_value

EFA_ONLY, EFA, PLAIN = "efa-only", "efa", "interface"
_IP_FIELDS = (
    "AssociatePublicIpAddress",
    "Ipv6AddressCount",
    "Ipv6Addresses",
    "PrivateIpAddress",
    "PrivateIpAddresses",
    "SecondaryPrivateIpAddressCount",
    "Ipv4PrefixCount",
    "Ipv4Prefixes",
    "Ipv6PrefixCount",
    "Ipv6Prefixes",
)


def resolved(visit: Visit, zone: str, kind: str, limits: Limits) -> list[dict[str, Any]]:
    """Those of each machine, as plain values. Raises AwsRefusal."""
    given: Sequence[Mapping[str, Any]] = visit.params.get("NetworkInterfaces", ())
    if not given:
        return [_plain(visit, zone)]
    for name, words in (("SubnetId", "an instance-level subnet ID"), ("SecurityGroupIds", "instance-level groups")):
        if visit.params.get(name):
            raise wrong_combination(f"Network interfaces and {words} may not be specified on the same request")
    _check_positions(given, kind, limits)
    _check_kinds(given, kind, limits)
    _check_addresses(given)
    return [_one(visit, zone, each, len(given)) for each in given]


def zone_asked(visit: Visit) -> str:
    """The zone that the subnets or the placement name, "" for none. Raises AwsRefusal."""
    given: Sequence[Mapping[str, Any]] = visit.params.get("NetworkInterfaces", ())
    names = [str(each["SubnetId"]) for each in given if each.get("SubnetId")]
    names += [str(visit.params["SubnetId"])] if visit.params.get("SubnetId") else []
    zones = {zone_of_subnet(visit, name) for name in names}
    if len(zones) > 1:
        raise wrong_value("Network interfaces must be in one Availability Zone")
    named = str(visit.params.get("Placement", {}).get("AvailabilityZone", ""))
    if named and named not in visit.zones():
        raise wrong_value(f"Invalid availability zone: [{named}]")
    if named and zones and zones != {named}:
        raise wrong_value(f"The subnet is not in the Availability Zone {named}")
    return named or next(iter(zones), "")


def addresses_of(interfaces: Sequence[Mapping[str, Any]]) -> int:
    """How many addresses of the subnet a machine takes (rule efa_only_takes_no_address)."""
    return sum(1 for one in interfaces if one["type"] != EFA_ONLY)


def _check_positions(given: Sequence[Mapping[str, Any]], kind: str, limits: Limits) -> None:
    if any(each.get("NetworkInterfaceId") for each in given):
        raise AwsRefusal("InvalidNetworkInterfaceID.NotFound", "an interface that exists cannot be attached here")
    if any("DeviceIndex" not in each for each in given):
        raise wrong_value("Each network interface requires a device index.")
    positions = [(int(each.get("NetworkCardIndex", 0)), int(each["DeviceIndex"])) for each in given]
    if len(set(positions)) < len(positions):
        raise wrong_value("Each network interface requires a unique device index.")
    for card, count in Counter(card for card, _ in positions).items():
        if card >= limits.cards:
            raise wrong_value(f"Network card index {card} is not valid: {kind} has {limits.cards} network cards.")
        if count > limits.enis:
            words = f"Interface count {count} on network card {card} exceeds the limit of {limits.enis} for {kind}"
            raise AwsRefusal("AttachmentLimitExceeded", words)
    if (0, 0) not in positions:
        raise wrong_combination("A primary network interface (network card 0, device index 0) is required.")


def _check_kinds(given: Sequence[Mapping[str, Any]], kind: str, limits: Limits) -> None:
    fast = Counter[int]()
    for each in given:
        sort, card = str(each.get("InterfaceType", PLAIN)), int(each.get("NetworkCardIndex", 0))
        if sort not in (PLAIN, EFA, EFA_ONLY):
            raise wrong_value(f"Invalid value '{sort}' for InterfaceType.")
        if sort == PLAIN:
            continue
        fast[card] += 1
        if not limits.efa or (card == 0 and not limits.card0_efa):
            where = f" on network card {card}" if limits.efa else ""
            raise wrong_combination(f"EFA interfaces are not supported on {kind}{where}.")
        if sort == EFA_ONLY and (card, int(each["DeviceIndex"])) == (0, 0):
            raise wrong_value("The primary network interface cannot be of type efa-only.")
    if sum(fast.values()) > limits.efa or any(count > 1 for count in fast.values()):
        words = f"EFA interface count {sum(fast.values())} exceeds the allowed limit for {kind}: one on a network card"
        raise AwsRefusal("AttachmentLimitExceeded", words)


def _check_addresses(given: Sequence[Mapping[str, Any]]) -> None:
    for each in given:
        if each.get("InterfaceType") == EFA_ONLY and any(each.get(name) for name in _IP_FIELDS):
            raise wrong_value("An interface of type efa-only cannot have an IP address.")
    if len(given) > 1 and any(each.get("AssociatePublicIpAddress") for each in given):
        words = "The associatePublicIPAddress parameter cannot be specified when launching with multiple network"
        raise wrong_combination(f"{words} interfaces.")


def _plain(visit: Visit, zone: str) -> dict[str, Any]:
    if visit.params.get("SecurityGroups"):
        raise wrong_combination("Groups are named by their ids here: SecurityGroupIds")
    return _one(visit, zone, {"DeviceIndex": 0, "Groups": visit.params.get("SecurityGroupIds", ())}, 1)


def _one(visit: Visit, zone: str, given: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Rule public_address_by_itself_only_with_one_interface."""
    named = [str(one) for one in given.get("Groups", ())] or [groups.default_group(visit)]
    for group in named:
        groups.find(visit, group)
    return {
        "card": int(given.get("NetworkCardIndex", 0)),
        "device": int(given["DeviceIndex"]),
        "type": str(given.get("InterfaceType", PLAIN)),
        "subnet": str(given.get("SubnetId") or subnet_id(zone)),
        "groups": named,
        "description": str(given.get("Description", "")),
        "public": count == 1 and bool(given.get("AssociatePublicIpAddress", True)),
    }
