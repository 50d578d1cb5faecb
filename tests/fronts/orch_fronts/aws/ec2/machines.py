"""Instances as EC2 shows them: ids, addresses, interfaces, volumes; and finding them again by their ids.

An id says which launch it is of and which place it has in it, so nothing about ids has to be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2 import network, placement
from orch_fronts.aws.ec2.filters import tag_list
from orch_fronts.aws.ec2.groups import names_of
from orch_fronts.aws.ec2.interfaces import EFA_ONLY, PLAIN
from orch_fronts.aws.ec2.lives import CODES, REASONS, SHOWN_FOR, Life, life_of
from orch_fronts.aws.ec2.tags import now_of
from orch_fronts.aws.ec2.visit import Visit, region_of
from orchestrator.simulator.calls import Look
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.state import Phase

PORT_TAG = "orch-ssh-port"  # on instances that stand on this computer: where their sshd listens
_ID = re.compile(r"i-0([0-9a-f]{12})([0-9a-f]{4})")
_ENI = re.compile(r"eni-([0-9a-f]{9})([0-9a-f]{4})([0-9a-f]{4})")
_HOLDS = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One instance. record: what was asked for when it was launched, resolved."""

    visit: Visit
    look: Look
    rank: int
    record: Mapping[str, Any]
    life: Life

    @property
    def id(self) -> str:
        return f"i-0{int(self.look.uid):012x}{self.rank:04x}"

    @property
    def tags(self) -> dict[str, str]:
        """With the port of its sshd where it stands on this computer."""
        port = self._place[1] if self._place else 0
        found = now_of(self.visit, self.id, self.record["tags"].get("instance", {}))
        return found | ({PORT_TAG: str(port)} if port else {})

    @property
    def addresses(self) -> list[str]:
        """Those of its interfaces that have one, in their order."""
        given = network.of_host(self.visit, self.look.uid, self.rank) if self.life.state in _HOLDS else []
        return [str(self._place[0]), *given[1:]] if given and self._place else given

    @property
    def public_address(self) -> str:
        """Of its primary interface. Rule public_address_is_there_while_it_runs."""
        eip = association_of(self.visit, self.eni(0))
        if eip is None and not (self.record["interfaces"][0]["public"] and self.life.state == "running"):
            return ""
        if self._place:
            return str(self._place[0])
        return str(eip["ip"]) if eip else "198.18." + ".".join(self.addresses[0].split(".")[2:])

    @property
    def spot_id(self) -> str:
        number = int(self.look.uid) * 0x1000 + self.rank
        return f"sir-{number:08x}" if self.record["market"] == "spot" else ""

    def eni(self, index: int) -> str:
        return f"eni-{int(self.look.uid):09x}{self.rank:04x}{index:04x}"

    def volume(self, index: int) -> str:
        return f"vol-{int(self.look.uid):09x}{self.rank:04x}{index:04x}"

    @property
    def _place(self) -> tuple[str, int] | None:
        """Address and port of the real host behind it."""
        places: Sequence[Any] | None = self.visit.kept("places").get(self.look.uid)
        return (str(places[self.rank][0]), int(places[self.rank][1])) if places else None


def every(visit: Visit) -> list[Machine]:
    """All of the region that EC2 still knows, as they are."""
    looks = [describe_resource(resource) for resource in visit.cloud.state.resources.values()]
    return [machine for look in looks for machine in of_look(visit, look)]


def of_look(visit: Visit, look: Look) -> Iterator[Machine]:
    record = record_of(visit, look)
    if record is None or (look.phase is Phase.ABSENT and visit.now - ended_at(visit, look.uid) > SHOWN_FOR):
        return
    for rank in range(look.size):
        yield Machine(visit=visit, look=look, rank=rank, record=record, life=life_of(visit.cloud, look, rank))


def ended_at(visit: Visit, uid: str) -> float:
    return visit.cloud.state.resources[uid].changed


def record_of(visit: Visit, look: Look) -> Mapping[str, Any] | None:
    """None for what is not in this region. What a tester has put there for somebody else is a plain machine."""
    if region_of(visit.cloud, look.zone) != visit.region:
        return None
    found: Mapping[str, Any] | None = look.extra.get("ec2")
    if found is not None:
        return found
    interface = {"card": 0, "device": 0, "type": PLAIN, "subnet": network.subnet_id(look.zone), "public": False}
    return {
        **_PLAIN_RECORD,
        "tags": {"instance": dict(look.labels)},
        "interfaces": [interface | {"groups": [], "description": ""}],
    }


def find(visit: Visit, name: str) -> Machine:
    """Raises AwsRefusal. Rule unknown_instance_is_told_from_a_malformed_id."""
    if not re.fullmatch(r"i-[0-9a-f]{8}(?:[0-9a-f]{9})?", name):
        raise AwsRefusal("InvalidInstanceID.Malformed", f'Invalid id: "{name}"')
    parts = _ID.fullmatch(name)
    resource = visit.cloud.state.resources.get(f"{int(parts[1], 16):06d}") if parts else None
    known = list(of_look(visit, describe_resource(resource))) if resource else []
    rank = int(parts[2], 16) if parts else 0
    if rank >= len(known):
        raise AwsRefusal("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
    return known[rank]


def find_eni(visit: Visit, name: str) -> tuple[Machine, int]:
    """The machine and which of its interfaces. Raises AwsRefusal."""
    parts = _ENI.fullmatch(name)
    resource = visit.cloud.state.resources.get(f"{int(parts[1], 16):06d}") if parts else None
    machines = list(of_look(visit, describe_resource(resource))) if resource else []
    rank, index = (int(parts[2], 16), int(parts[3], 16)) if parts else (0, 0)
    if rank < len(machines) and machines[rank].life.state in _HOLDS and index < _count(machines[rank]):
        return machines[rank], index
    words = f"The networkInterface ID '{name}' does not exist"
    raise AwsRefusal("InvalidNetworkInterfaceID.NotFound", words)


def association_of(visit: Visit, eni: str) -> Mapping[str, Any] | None:
    """The Elastic IP address on this interface."""
    for one in visit.kept("addresses").values():
        if one["association"] and one["association"]["eni"] == eni:
            return cast(Mapping[str, Any], one)
    return None


def instance(machine: Machine) -> dict[str, Any]:
    """As DescribeInstances shows it."""
    visit, record, look, life = machine.visit, machine.record, machine.look, machine.life
    addresses = machine.addresses
    shown_one: dict[str, Any] = {
        "InstanceId": machine.id,
        "ImageId": record["image"],
        "InstanceType": record["type"],
        "AmiLaunchIndex": machine.rank,
        "ClientToken": record["token"],
        "State": {"Code": CODES[life.state], "Name": life.state},
        "StateTransitionReason": _transition(life),
        "LaunchTime": look.created,
        "Placement": _placement(machine),
        "Monitoring": {"State": "disabled"},
        "Architecture": "x86_64",
        "RootDeviceName": record["root"],
        "RootDeviceType": "ebs",
        "EnaSupport": True,
        "Tags": tag_list(machine.tags),
        "BlockDeviceMappings": [],
        "NetworkInterfaces": [],
        "SecurityGroups": [],
        "MetadataOptions": {"State": "applied", **record["metadata"]},
        "CapacityReservationSpecification": record["reservation_spec"] or {"CapacityReservationPreference": "open"},
    }
    if life.cause:
        shown_one["StateReason"] = {"Code": life.cause, "Message": f"{life.cause}: {REASONS[life.cause]}"}
    if record["profile"]:
        shown_one["IamInstanceProfile"] = {"Arn": record["profile"], "Id": "AIPA00000000EXAMPLE"}
    if record["market"] in ("spot", "capacity-block"):
        shown_one["InstanceLifecycle"] = record["market"]
    if machine.spot_id:
        shown_one["SpotInstanceRequestId"] = machine.spot_id
    if record["reservation"]:
        shown_one["CapacityReservationId"] = record["reservation"]
    if life.state not in _HOLDS:
        return shown_one
    return shown_one | {
        "SubnetId": record["interfaces"][0]["subnet"],
        "VpcId": network.vpc_id(visit.region),
        "PrivateIpAddress": addresses[0] if addresses else None,
        "PublicIpAddress": machine.public_address or None,
        "SecurityGroups": names_of(visit, record["interfaces"][0]["groups"]),
        "BlockDeviceMappings": _volumes(machine),
        "NetworkInterfaces": [_interface(machine, index, addresses) for index in range(_count(machine))],
    }


def network_interface(machine: Machine, index: int) -> dict[str, Any]:
    """As DescribeNetworkInterfaces shows it."""
    one = _interface(machine, index, machine.addresses)
    attachment = one["Attachment"] | {"InstanceId": machine.id, "InstanceOwnerId": machine.visit.account}
    zone, tags = machine.look.zone, eni_tags(machine, index)
    return one | {"Attachment": attachment, "AvailabilityZone": zone, "TagSet": tag_list(tags)}


def eni_tags(machine: Machine, index: int) -> dict[str, str]:
    return now_of(machine.visit, machine.eni(index), machine.record["tags"].get("network-interface", {}))


def _interface(machine: Machine, index: int, addresses: Sequence[str]) -> dict[str, Any]:
    given, eni = machine.record["interfaces"][index], machine.eni(index)
    one: dict[str, Any] = {
        "NetworkInterfaceId": eni,
        "InterfaceType": given["type"],
        "Description": given["description"],
        "Status": "in-use",
        "OwnerId": machine.visit.account,
        "SubnetId": given["subnet"],
        "VpcId": network.vpc_id(machine.visit.region),
        "Groups": names_of(machine.visit, given["groups"]),
        "MacAddress": "0a:" + ":".join(eni[-10:][at : at + 2] for at in range(0, 10, 2)),
        "SourceDestCheck": True,
        "Attachment": {
            "AttachmentId": eni.replace("eni-", "eni-attach-"),
            "DeviceIndex": given["device"],
            "NetworkCardIndex": given["card"],
            "Status": "attached",
            "AttachTime": machine.look.created,
            "DeleteOnTermination": True,
        },
    }
    if given["type"] == EFA_ONLY:
        return one
    place = sum(1 for other in machine.record["interfaces"][:index] if other["type"] != EFA_ONLY)
    if place >= len(addresses):
        return one
    one["PrivateIpAddress"] = addresses[place]
    private: dict[str, Any] = {"Primary": True, "PrivateIpAddress": addresses[place]}
    eip = association_of(machine.visit, eni)
    public = machine.public_address if index == 0 else str(eip["ip"]) if eip else ""
    if public:
        one["Association"] = {"PublicIp": public, "IpOwnerId": machine.visit.account if eip else "amazon"}
        private["Association"] = one["Association"]
    return one | {"PrivateIpAddresses": [private]}


def _count(machine: Machine) -> int:
    return len(machine.record["interfaces"])


def _placement(machine: Machine) -> dict[str, Any]:
    shown_one = {"AvailabilityZone": machine.look.zone, "Tenancy": "default", "GroupName": machine.record["group"]}
    if machine.record["group"]:
        shown_one["GroupId"] = placement.group_id(machine.visit, machine.record["group"])
    return shown_one


def _volumes(machine: Machine) -> list[dict[str, Any]]:
    return [
        {
            "DeviceName": name,
            "Ebs": {
                "VolumeId": machine.volume(index),
                "Status": "attached",
                "AttachTime": machine.look.created,
                "DeleteOnTermination": True,
            },
        }
        for index, name in enumerate(machine.record["devices"])
    ]


def _transition(life: Life) -> str:
    if not life.cause:
        return ""
    return "User initiated" if life.cause.startswith("Client.User") else f"{life.cause}: {REASONS[life.cause]}"


_PLAIN_RECORD: Mapping[str, Any] = {
    "image": "ami-00000000000000000",
    "root": "/dev/sda1",
    "devices": ["/dev/sda1"],
    "type": "t3.micro",
    "token": "",
    "market": "on-demand",
    "group": "",
    "profile": "",
    "reservation": "",
    "reservation_spec": {},
    "metadata": {},
    "shutdown": "stop",
    "user_data": "",
}
