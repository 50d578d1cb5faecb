"""Elastic IP addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, tag_facts, tag_list
from orch_fronts.aws.ec2.interfaces import EFA_ONLY
from orch_fronts.aws.ec2.machines import Machine, association_of, find, find_eni
from orch_fronts.aws.ec2.tags import now_of, sent
from orch_fronts.aws.ec2.visit import Visit, made_id
from orch_fronts.aws.ec2.words import answer, missing, wrong_combination, wrong_value
from orchestrator.simulator.scenario import ANY

MOST = 5  # in a region, quota L-0263D0A3; a quota of the scenario for "elastic-ip" wins
QUOTA = "elastic-ip"
_FILTERS = frozenset(
    {"allocation-id", "association-id", "domain", "instance-id", "network-interface-id", "public-ip", "tag-key"}
)


def allocate(visit: Visit) -> dict[str, Any]:
    """Rules five_elastic_ips and allocate_has_no_token."""
    tags = sent(visit, "elastic-ip").get("elastic-ip", {})
    if len(visit.here("addresses")) >= limit(visit):
        raise answer("ec2-addresses")

    def work() -> dict[str, Any]:
        number = visit.number()
        name, ip = made_id("eipalloc", visit.region, str(number)), f"198.51.{number >> 8 & 255}.{number & 255}"
        visit.kept("addresses")[name] = {"region": visit.region, "ip": ip, "tags": tags, "association": None}
        return {"AllocationId": name, "PublicIp": ip, "Domain": "vpc", "PublicIpv4Pool": "amazon",
                "NetworkBorderGroup": visit.region}  # fmt: skip

    return visit.changing(QUOTA, work)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("AllocationIds", ())]
    ips = [str(one) for one in visit.params.get("PublicIps", ())]
    every: dict[str, dict[str, Any]] = visit.here("addresses")
    for name in asked:
        _found(visit, name)
    wanted = [
        (name, one) for name, one in every.items() if (not asked or name in asked) and (not ips or one["ip"] in ips)
    ]
    if ips and len(wanted) < len(ips):
        raise AwsRefusal("InvalidAddress.NotFound", f"Address '{ips[0]}' not found.")
    found = chosen(visit, wanted, lambda pair: _facts(visit, *pair), _FILTERS)
    return {"Addresses": [_shown(visit, *pair) for pair in found]}


def associate(visit: Visit) -> dict[str, Any]:
    """Rules of Elastic IP addresses: see rules.py."""
    name = str(visit.params.get("AllocationId", ""))
    if not name:
        raise missing("AllocationId")
    one = _found(visit, name)
    machine, index = _target(visit)
    if machine.life.state == "pending":
        words = f"The pending instance '{machine.id}' is not in a valid state for this operation."
        raise AwsRefusal("InvalidInstanceID", words)
    if machine.record["interfaces"][index]["type"] == EFA_ONLY:
        raise wrong_value(f"The network interface '{machine.eni(index)}' has no private IP address.")
    again = bool(visit.params.get("AllowReassociation", True))
    held = one["association"]
    if held and held["eni"] == machine.eni(index):
        return visit.changing(name, lambda: {"AssociationId": held["id"]})
    other = association_of(visit, machine.eni(index))
    if not again and (held or other is not None):
        words = f"resource {name if held else machine.eni(index)} is already associated with an address or a resource"
        raise AwsRefusal("Resource.AlreadyAssociated", words)

    def work() -> dict[str, Any]:
        for each in visit.kept("addresses").values():
            if each["association"] and each["association"]["eni"] == machine.eni(index):
                each["association"] = None
        made = visit.new_id("eipassoc")
        where = {"id": made, "eni": machine.eni(index), "index": index, "uid": machine.look.uid, "rank": machine.rank}
        one["association"] = where
        return {"AssociationId": made}

    return visit.changing(name, work)


def disassociate(visit: Visit) -> dict[str, Any]:
    name = str(visit.params.get("AssociationId", ""))
    if not name:
        raise missing("AssociationId")
    held = of_association(visit, name)
    if not held:
        raise AwsRefusal("InvalidAssociationID.NotFound", f"The association ID '{name}' does not exist")

    def work() -> dict[str, Any]:
        visit.kept("addresses")[held]["association"] = None
        return {}

    return visit.changing(name, work)


def release(visit: Visit) -> dict[str, Any]:
    """Rule release_takes_the_address_from_its_instance."""
    name = str(visit.params.get("AllocationId", ""))
    if not name:
        raise missing("AllocationId")
    _found(visit, name)

    def work() -> dict[str, Any]:
        visit.kept("addresses").pop(name, None)
        return {}

    return visit.changing(name, work)


def limit(visit: Visit) -> int:
    for quota in visit.cloud.scenario.quotas:
        if quota.region in (visit.region, ANY) and quota.accelerator == QUOTA:
            return quota.amount
    return MOST


def of_association(visit: Visit, name: str) -> str:
    """The allocation id; "" for none."""
    every = visit.here("addresses").items()
    return next((held for held, one in every if one["association"] and one["association"]["id"] == name), "")


def tags_of(visit: Visit, name: str) -> dict[str, str]:
    one = visit.kept("addresses").get(name)
    return now_of(visit, name, one["tags"] if one else {})


def _found(visit: Visit, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = visit.here("addresses").get(name)
    if found is None:
        raise AwsRefusal("InvalidAllocationID.NotFound", f"The allocation ID '{name}' does not exist")
    return found


def _target(visit: Visit) -> tuple[Machine, int]:
    """Raises AwsRefusal. Rule elastic_ip_by_instance_only_with_one_interface."""
    eni, name = str(visit.params.get("NetworkInterfaceId", "")), str(visit.params.get("InstanceId", ""))
    if eni and name:
        raise wrong_combination("You may specify either an instance ID or a network interface ID, not both.")
    if eni:
        return find_eni(visit, eni)
    if not name:
        raise missing("NetworkInterfaceId")
    machine = find(visit, name)
    if machine.life.state in ("shutting-down", "terminated"):
        raise AwsRefusal("InvalidInstanceID", f"The instance '{name}' is not in a valid state for this operation.")
    if len(machine.record["interfaces"]) > 1:
        words = f"There are multiple interfaces attached to instance '{name}'."
        raise AwsRefusal("InvalidInstanceID", f"{words} Please specify an interface ID for the operation instead.")
    return machine, 0


def _shown(visit: Visit, name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "AllocationId": name,
        "PublicIp": one["ip"],
        "Domain": "vpc",
        "PublicIpv4Pool": "amazon",
        "NetworkBorderGroup": visit.region,
        "Tags": tag_list(now_of(visit, name, one["tags"])),
    }
    held = one["association"]
    if not held:
        return shown
    machine, _ = find_eni(visit, held["eni"])
    private = machine.addresses[0] if machine.addresses else None
    return shown | {
        "AssociationId": held["id"],
        "InstanceId": machine.id,
        "NetworkInterfaceId": held["eni"],
        "NetworkInterfaceOwnerId": visit.account,
        "PrivateIpAddress": private,
    }


def _facts(visit: Visit, name: str, one: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    shown = _shown(visit, name, one)
    names = {"allocation-id": "AllocationId", "association-id": "AssociationId", "domain": "Domain",
             "instance-id": "InstanceId", "network-interface-id": "NetworkInterfaceId",
             "public-ip": "PublicIp"}  # fmt: skip
    plain: dict[str, Sequence[str]] = {key: [shown[field]] for key, field in names.items() if field in shown}
    return plain | tag_facts(now_of(visit, name, one["tags"]))
