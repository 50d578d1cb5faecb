"""Elastic IP addresses by boto3."""

from __future__ import annotations

from typing import Any

from ec2_support import OTHER_REGION, REGION, Ec2, Make, efa, refusal, tags

from orch_fronts.aws.ec2.visit import left
from orchestrator.simulator.scenario import Quota


def primary(machine: dict[str, Any]) -> str:
    """The interface on network card 0 with device index 0."""
    for one in machine["NetworkInterfaces"]:
        if (one["Attachment"]["NetworkCardIndex"], one["Attachment"]["DeviceIndex"]) == (0, 0):
            return str(one["NetworkInterfaceId"])
    raise AssertionError("there is no primary interface")


def allocate(ec2: Ec2, **more: Any) -> str:
    return str(ec2.api.allocate_address(Domain="vpc", **more)["AllocationId"])


def test_five_elastic_ips(ec2: Ec2, make_ec2: Make) -> None:
    held = [allocate(ec2) for _ in range(5)]
    assert refusal(ec2.api.allocate_address) == ("AddressLimitExceeded", 400)
    ec2.at(OTHER_REGION).allocate_address()
    ec2.api.release_address(AllocationId=held[0])
    allocate(ec2)
    few = make_ec2(quotas=(Quota(region=REGION, accelerator="elastic-ip", amount=1),))
    allocate(few)
    assert refusal(few.api.allocate_address) == ("AddressLimitExceeded", 400)


def test_allocate_has_no_token(ec2: Ec2) -> None:
    tagged = {"TagSpecifications": tags("elastic-ip", orch_slice="c-1")}
    assert allocate(ec2, **tagged) != allocate(ec2, **tagged)
    found = ec2.api.describe_addresses(Filters=[{"Name": "tag:orch-slice", "Values": ["c-1"]}])["Addresses"]
    assert len({one["PublicIp"] for one in found}) == 2


def test_elastic_ip_by_instance_only_with_one_interface(ec2: Ec2) -> None:
    several, single = ec2.running(NetworkInterfaces=efa(4))[0], ec2.running()[0]
    address = allocate(ec2)
    by_id = {"AllocationId": address, "InstanceId": several["InstanceId"]}
    assert refusal(ec2.api.associate_address, **by_id) == ("InvalidInstanceID", 400)
    ec2.api.associate_address(AllocationId=address, NetworkInterfaceId=primary(several))
    shown = ec2.look(several["InstanceId"])[0]
    told = ec2.api.describe_addresses(AllocationIds=[address])["Addresses"][0]
    assert shown["PublicIpAddress"] == told["PublicIp"]
    assert (told["InstanceId"], told["NetworkInterfaceId"]) == (several["InstanceId"], primary(several))
    assert told["PrivateIpAddress"] == shown["PrivateIpAddress"]
    ec2.api.associate_address(AllocationId=allocate(ec2), InstanceId=single["InstanceId"])


def test_an_address_needs_an_interface_with_one(ec2: Ec2) -> None:
    machine, address = ec2.running(NetworkInterfaces=efa(4))[0], allocate(ec2)
    fast = next(one for one in machine["NetworkInterfaces"] if one["InterfaceType"] == "efa-only")
    on_fast = {"AllocationId": address, "NetworkInterfaceId": fast["NetworkInterfaceId"]}
    assert refusal(ec2.api.associate_address, **on_fast) == ("InvalidParameterValue", 400)
    nowhere = {"AllocationId": address, "NetworkInterfaceId": "eni-0fffffffffffffff0"}
    assert refusal(ec2.api.associate_address, **nowhere) == ("InvalidNetworkInterfaceID.NotFound", 400)
    absent = {"AllocationId": "eipalloc-0fffffffffffffff0", "NetworkInterfaceId": primary(machine)}
    assert refusal(ec2.api.associate_address, **absent) == ("InvalidAllocationID.NotFound", 400)
    both = {"AllocationId": address, "NetworkInterfaceId": primary(machine), "InstanceId": machine["InstanceId"]}
    assert refusal(ec2.api.associate_address, **both) == ("InvalidParameterCombination", 400)


def test_elastic_ip_waits_for_the_instance(ec2: Ec2) -> None:
    machine, address = ec2.run()[0], allocate(ec2)
    on_it = {"AllocationId": address, "NetworkInterfaceId": primary(machine)}
    assert refusal(ec2.api.associate_address, **on_it) == ("InvalidInstanceID", 400)
    ec2.clock.advance(41)
    ec2.api.associate_address(**on_it)


def test_associate_can_be_asked_again(ec2: Ec2) -> None:
    one, other = ec2.running(2)
    first, second = allocate(ec2), allocate(ec2)
    strict = {"AllowReassociation": False}
    on_one = {"AllocationId": first, "NetworkInterfaceId": primary(one)}
    made = ec2.api.associate_address(**on_one, **strict)["AssociationId"]
    assert ec2.api.associate_address(**on_one, **strict)["AssociationId"] == made
    taken = ("Resource.AlreadyAssociated", 400)
    on_other = {"AllocationId": first, "NetworkInterfaceId": primary(other)}
    assert refusal(ec2.api.associate_address, **on_other, **strict) == taken
    second_on_one = {"AllocationId": second, "NetworkInterfaceId": primary(one)}
    assert refusal(ec2.api.associate_address, **second_on_one, **strict) == taken
    moved = ec2.api.associate_address(**on_other)["AssociationId"]
    assert moved != made
    ec2.api.disassociate_address(AssociationId=moved)
    assert refusal(ec2.api.disassociate_address, AssociationId=moved) == ("InvalidAssociationID.NotFound", 400)
    assert "AssociationId" not in ec2.api.describe_addresses(AllocationIds=[first])["Addresses"][0]


def test_release_takes_the_address_from_its_instance(ec2: Ec2) -> None:
    machine, address = ec2.running()[0], allocate(ec2)
    ec2.api.associate_address(AllocationId=address, NetworkInterfaceId=primary(machine))
    shown = ec2.look()[0]["PublicIpAddress"]
    ec2.api.release_address(AllocationId=address)
    assert ec2.look()[0].get("PublicIpAddress") != shown
    assert left(ec2.cloud) == []


def test_elastic_ip_outlives_the_instance(ec2: Ec2) -> None:
    machine, address = ec2.running()[0], allocate(ec2)
    ec2.api.associate_address(AllocationId=address, NetworkInterfaceId=primary(machine))
    ec2.terminate(machine["InstanceId"])
    ec2.clock.advance(21)
    assert "AssociationId" not in ec2.api.describe_addresses()["Addresses"][0]
    assert left(ec2.cloud) == [f"addresses/{address}"]
    ec2.api.release_address(AllocationId=address)
    assert refusal(ec2.api.release_address, AllocationId=address) == ("InvalidAllocationID.NotFound", 400)
    assert left(ec2.cloud) == []
