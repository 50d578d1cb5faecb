"""Interfaces, addresses, security groups and placement groups by boto3."""

from __future__ import annotations

from typing import Any

import pytest
from ec2_support import FAR, OTHER, OTHER_REGION, P4D, P5, REGION, ZONE, Ec2, efa, refusal, tags, words_of

from orch_fronts.aws.ec2.visit import left
from orchestrator.catalog.ec2 import load_instances

WRONG_VALUE, WRONG_PAIR = ("InvalidParameterValue", 400), ("InvalidParameterCombination", 400)
TOO_MANY = ("AttachmentLimitExceeded", 400)


def plain(card: int = 0, device: int = 0, **more: Any) -> dict[str, Any]:
    return {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": "interface", **more}


@pytest.mark.parametrize(
    "kind", [name for name, one in load_instances().items() if one.efa_max and REGION in one.regions]
)
def test_every_type_takes_an_efa_on_each_card_that_has_one(ec2: Ec2, kind: str) -> None:
    known = load_instances()[kind]
    given = efa(known.network_cards, known.efa_on_card0)
    market = {} if known.on_demand else {"InstanceMarketOptions": {"MarketType": "spot"}}
    shown = ec2.running(InstanceType=kind, NetworkInterfaces=given, **market)[0]["NetworkInterfaces"]
    assert sum(one["InterfaceType"] == "efa-only" for one in shown) == known.efa_max
    assert sum("PrivateIpAddress" in one for one in shown) == 1
    positions = {(one["Attachment"]["NetworkCardIndex"], one["Attachment"]["DeviceIndex"]) for one in shown}
    assert len(positions) == len(given)


def test_position_is_a_card_and_a_device(ec2: Ec2) -> None:
    assert refusal(ec2.run, NetworkInterfaces=[plain(), plain()]) == WRONG_VALUE
    assert refusal(ec2.run, NetworkInterfaces=[plain(1, 0)]) == WRONG_PAIR
    assert refusal(ec2.run, NetworkInterfaces=[plain(0, 1)]) == WRONG_PAIR
    assert refusal(ec2.run, NetworkInterfaces=[{"InterfaceType": "interface"}]) == WRONG_VALUE
    assert len(ec2.run(NetworkInterfaces=[plain(), plain(1, 0)])[0]["NetworkInterfaces"]) == 2


def test_card_holds_so_many_interfaces(ec2: Ec2) -> None:
    assert refusal(ec2.run, NetworkInterfaces=[plain(), plain(4, 0)]) == WRONG_VALUE
    three = [plain(0, device) for device in range(3)]
    assert refusal(ec2.run, InstanceType=P5, NetworkInterfaces=three) == TOO_MANY
    assert len(ec2.run(NetworkInterfaces=three)[0]["NetworkInterfaces"]) == 3  # p4d has 15 on a card


def test_efa_only_where_there_is_one(ec2: Ec2) -> None:
    assert refusal(ec2.run, InstanceType="trn1.2xlarge", NetworkInterfaces=efa(1)) == WRONG_PAIR
    assert refusal(ec2.run, InstanceType="t3.micro", NetworkInterfaces=efa(1, kind="efa")) == WRONG_PAIR
    assert refusal(ec2.run, InstanceType="p6-b300.48xlarge", NetworkInterfaces=efa(17)) == WRONG_PAIR
    two = [plain(), plain(0, 1, InterfaceType="efa-only"), plain(0, 2, InterfaceType="efa-only")]
    assert refusal(ec2.run, NetworkInterfaces=two) == TOO_MANY
    assert refusal(ec2.run, NetworkInterfaces=[plain(InterfaceType="fast")]) == WRONG_VALUE


def test_efa_only_is_never_primary(ec2: Ec2) -> None:
    assert refusal(ec2.run, NetworkInterfaces=[plain(InterfaceType="efa-only")]) == WRONG_VALUE
    for field in ({"AssociatePublicIpAddress": True}, {"PrivateIpAddress": "172.31.0.9"}, {"Ipv6AddressCount": 1}):
        second = plain(0, 1, **field) | {"InterfaceType": "efa-only"}
        assert refusal(ec2.run, NetworkInterfaces=[plain(), second]) == WRONG_VALUE


def test_efa_only_takes_no_address(ec2: Ec2) -> None:
    def free() -> int:
        return int(ec2.api.describe_subnets(SubnetIds=[ec2.subnet()])["Subnets"][0]["AvailableIpAddressCount"])

    before = free()
    only = ec2.run(2, InstanceType=P5, NetworkInterfaces=efa(32))
    assert before - free() == 2
    ec2.run(1, InstanceType=P5, NetworkInterfaces=efa(32, kind="efa"))
    assert before - free() == 2 + 33
    ec2.terminate(*(one["InstanceId"] for one in only))
    ec2.clock.advance(21)
    assert before - free() == 33


def test_subnet_has_so_many_addresses(ec2: Ec2) -> None:
    every = efa(32, kind="efa")  # 33 addresses each
    assert refusal(ec2.run, count=124, InstanceType=P5, NetworkInterfaces=every) == (
        "InsufficientFreeAddressesInSubnet",
        400,
    )
    ec2.run(60, InstanceType=P5, NetworkInterfaces=every)
    assert refusal(ec2.run, count=64, InstanceType=P5, NetworkInterfaces=every)[0].startswith("InsufficientFree")
    assert ec2.run(64, InstanceType=P5, NetworkInterfaces=efa(32))


def test_public_address_only_with_one_interface(ec2: Ec2) -> None:
    public = {"AssociatePublicIpAddress": True}
    assert refusal(ec2.run, NetworkInterfaces=[plain(**public), plain(1)]) == WRONG_PAIR
    assert "multiple network interfaces" in words_of(ec2.run, NetworkInterfaces=[plain(**public), plain(1)])
    assert ec2.running(NetworkInterfaces=[plain(**public)])[0]["PublicIpAddress"]


def test_public_address_by_itself_only_with_one_interface(ec2: Ec2) -> None:
    assert "PublicIpAddress" in ec2.running()[0]
    assert "PublicIpAddress" not in ec2.running(NetworkInterfaces=[plain(), plain(1)])[0]
    assert "PublicIpAddress" not in ec2.running(NetworkInterfaces=[plain(AssociatePublicIpAddress=False)])[0]


def test_public_address_is_there_while_it_runs(ec2: Ec2) -> None:
    assert "PublicIpAddress" not in ec2.run()[0]
    ec2.clock.advance(41)
    only = ec2.look()[0]
    assert only["PublicIpAddress"] == only["NetworkInterfaces"][0]["Association"]["PublicIp"]
    ec2.api.stop_instances(InstanceIds=[only["InstanceId"]])
    ec2.clock.advance(21)
    stopped = ec2.look()[0]
    assert "PublicIpAddress" not in stopped
    assert stopped["PrivateIpAddress"] == only["PrivateIpAddress"]


def test_subnet_and_groups_stand_in_the_interfaces(ec2: Ec2) -> None:
    group = ec2.api.create_security_group(GroupName="g", Description="d")["GroupId"]
    assert refusal(ec2.run, NetworkInterfaces=[plain()], SubnetId=ec2.subnet()) == WRONG_PAIR
    assert refusal(ec2.run, NetworkInterfaces=[plain()], SecurityGroupIds=[group]) == WRONG_PAIR
    inside = ec2.running(NetworkInterfaces=[plain(SubnetId=ec2.subnet(OTHER), Groups=[group])])[0]
    beside = ec2.running(SubnetId=ec2.subnet(OTHER), SecurityGroupIds=[group])[0]
    for one in (inside, beside):
        assert one["Placement"]["AvailabilityZone"] == OTHER
        assert one["SecurityGroups"] == [{"GroupId": group, "GroupName": "g"}]


def test_subnet_must_fit_the_zone(ec2: Ec2) -> None:
    assert refusal(ec2.run, SubnetId="subnet-00000000000000000") == ("InvalidSubnetID.NotFound", 400)
    wrong = {"SubnetId": ec2.subnet(OTHER), "Placement": {"AvailabilityZone": ZONE}}
    assert refusal(ec2.run, **wrong) == WRONG_VALUE
    assert refusal(ec2.run, Placement={"AvailabilityZone": "us-east-1z"}) == WRONG_VALUE
    two = [plain(SubnetId=ec2.subnet()), plain(1, SubnetId=ec2.subnet(OTHER))]
    assert refusal(ec2.run, NetworkInterfaces=two) == WRONG_VALUE


def test_every_region_has_a_default_vpc(ec2: Ec2) -> None:
    zones = ec2.api.describe_availability_zones()["AvailabilityZones"]
    assert [(one["ZoneName"], one["ZoneId"]) for one in zones] == [(ZONE, "use1-az1"), (OTHER, "use1-az2")]
    vpc = ec2.api.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]
    subnets = ec2.api.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    assert {one["VpcId"] for one in subnets} == {vpc["VpcId"]}
    assert [one["CidrBlock"] for one in subnets] == ["172.31.0.0/20", "172.31.16.0/20"]
    other = ec2.at(OTHER_REGION).describe_subnets()["Subnets"]
    assert [one["AvailabilityZone"] for one in other] == [FAR]
    assert {one["RegionName"] for one in ec2.api.describe_regions()["Regions"]} == {REGION, OTHER_REGION}


def test_group_name_is_taken(ec2: Ec2) -> None:
    group = {"GroupName": "orch-c-1", "Description": "d", "TagSpecifications": tags("security-group", orch_slice="c-1")}
    first = ec2.api.create_security_group(**group)["GroupId"]
    assert refusal(ec2.api.create_security_group, **group) == ("InvalidGroup.Duplicate", 400)
    ec2.at(OTHER_REGION).create_security_group(**group)
    found = ec2.api.describe_security_groups(Filters=[{"Name": "tag:orch-slice", "Values": ["c-1"]}])
    assert [one["GroupId"] for one in found["SecurityGroups"]] == [first]
    assert left(ec2.cloud) == ["groups/orch-c-1", "groups/orch-c-1"]


def test_second_rule_of_the_kind_is_refused(ec2: Ec2) -> None:
    group = ec2.api.create_security_group(GroupName="g", Description="d")["GroupId"]
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
    answer = ec2.api.authorize_security_group_ingress(GroupId=group, IpPermissions=[itself, ssh])
    assert len(answer["SecurityGroupRules"]) == 2
    ec2.api.authorize_security_group_egress(GroupId=group, IpPermissions=[itself])
    for rule in (itself, ssh):
        again = {"GroupId": group, "IpPermissions": [rule]}
        assert refusal(ec2.api.authorize_security_group_ingress, **again) == ("InvalidPermission.Duplicate", 400)
    anywhere = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    code, _ = refusal(ec2.api.authorize_security_group_egress, GroupId=group, IpPermissions=[anywhere])
    assert code == "InvalidPermission.Duplicate"  # every new group lets everything out
    shown = ec2.api.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
    assert [one["IpProtocol"] for one in shown["IpPermissions"]] == ["-1", "tcp"]
    assert shown["IpPermissionsEgress"][0]["UserIdGroupPairs"][0]["GroupId"] == group


def test_a_rule_must_name_something_that_can_be(ec2: Ec2) -> None:
    group = ec2.api.create_security_group(GroupName="g", Description="d")["GroupId"]
    strange = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-00000000000000000"}]}
    malformed = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "IpRanges": [{"CidrIp": "everywhere"}]}
    portless = {"IpProtocol": "tcp", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    for rule, code in ((strange, "InvalidGroup.NotFound"), (malformed, WRONG_VALUE[0]), (portless, WRONG_VALUE[0])):
        given = {"GroupId": group, "IpPermissions": [rule]}
        assert refusal(ec2.api.authorize_security_group_ingress, **given)[0] == code


def test_revoked_rule_is_named_by_its_values(ec2: Ec2) -> None:
    group = ec2.api.create_security_group(GroupName="g", Description="d")["GroupId"]
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    sources = [{"CidrIp": f"192.0.2.{number}/32", "Description": f"number {number}"} for number in (1, 2)]
    ec2.api.authorize_security_group_ingress(GroupId=group, IpPermissions=[ssh | {"IpRanges": sources}])
    again = {"GroupId": group, "IpPermissions": [ssh | {"IpRanges": [{"CidrIp": "192.0.2.1/32", "Description": "x"}]}]}
    assert refusal(ec2.api.authorize_security_group_ingress, **again) == ("InvalidPermission.Duplicate", 400)
    first = [ssh | {"IpRanges": [{"CidrIp": "192.0.2.1/32"}]}]
    assert not ec2.api.revoke_security_group_ingress(GroupId=group, IpPermissions=first)["UnknownIpPermissions"]
    (shown,) = ec2.api.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    assert shown["IpRanges"] == sources[1:]
    unknown = ec2.api.revoke_security_group_ingress(GroupId=group, IpPermissions=first)["UnknownIpPermissions"]
    assert [one["IpRanges"] for one in unknown] == [first[0]["IpRanges"]]


def test_group_in_use_stays(ec2: Ec2) -> None:
    make = ec2.api.create_security_group
    first, second = (make(GroupName=name, Description="d")["GroupId"] for name in ("a", "b"))
    pair = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": first}]}
    ec2.api.authorize_security_group_ingress(GroupId=second, IpPermissions=[pair])
    assert refusal(ec2.api.delete_security_group, GroupId=first) == ("DependencyViolation", 400)
    only = ec2.running(SecurityGroupIds=[second])[0]["InstanceId"]
    assert refusal(ec2.api.delete_security_group, GroupId=second) == ("DependencyViolation", 400)
    ec2.terminate(only)
    ec2.clock.advance(10)
    assert refusal(ec2.api.delete_security_group, GroupId=second) == ("DependencyViolation", 400)
    ec2.clock.advance(11)
    ec2.api.delete_security_group(GroupId=second)
    ec2.api.delete_security_group(GroupId=first)
    assert refusal(ec2.api.delete_security_group, GroupId=first) == ("InvalidGroup.NotFound", 400)
    assert refusal(ec2.run, SecurityGroupIds=[first]) == ("InvalidGroup.NotFound", 400)
    assert left(ec2.cloud) == []


def test_placement_group_name_is_taken(ec2: Ec2) -> None:
    group = {"GroupName": "pg", "Strategy": "cluster", "TagSpecifications": tags("placement-group", orch_slice="c-1")}
    ec2.api.create_placement_group(**group)
    assert refusal(ec2.api.create_placement_group, **group) == ("InvalidPlacementGroup.Duplicate", 400)
    found = ec2.api.describe_placement_groups(Filters=[{"Name": "tag:orch-slice", "Values": ["c-1"]}])
    assert [one["GroupName"] for one in found["PlacementGroups"]] == ["pg"]
    ec2.api.delete_placement_group(GroupName="pg")
    assert refusal(ec2.api.delete_placement_group, GroupName="pg") == ("InvalidPlacementGroup.Unknown", 400)
    assert refusal(ec2.api.describe_placement_groups, GroupNames=["pg"]) == ("InvalidPlacementGroup.Unknown", 400)


def test_placement_group_must_exist(ec2: Ec2) -> None:
    where = {"Placement": {"AvailabilityZone": ZONE, "GroupName": "pg"}}
    assert refusal(ec2.run, **where) == ("InvalidPlacementGroup.Unknown", 400)
    ec2.api.create_placement_group(GroupName="pg", Strategy="cluster")
    assert ec2.run(**where)[0]["Placement"]["GroupName"] == "pg"


def test_cluster_group_has_one_zone(ec2: Ec2) -> None:
    ec2.api.create_placement_group(GroupName="pg", Strategy="cluster")
    first = ec2.run(Placement={"AvailabilityZone": ZONE, "GroupName": "pg"})[0]["InstanceId"]
    there = {"Placement": {"AvailabilityZone": OTHER, "GroupName": "pg"}}
    assert refusal(ec2.run, **there) == WRONG_VALUE
    ec2.terminate(first)
    ec2.clock.advance(21)
    assert ec2.run(**there)


def test_placement_group_in_use_stays(ec2: Ec2) -> None:
    ec2.api.create_placement_group(GroupName="pg", Strategy="cluster")
    only = ec2.running(Placement={"AvailabilityZone": ZONE, "GroupName": "pg"})[0]["InstanceId"]
    assert refusal(ec2.api.delete_placement_group, GroupName="pg") == ("InvalidPlacementGroup.InUse", 400)
    ec2.terminate(only)
    assert refusal(ec2.api.delete_placement_group, GroupName="pg") == ("InvalidPlacementGroup.InUse", 400)
    ec2.clock.advance(21)
    ec2.api.delete_placement_group(GroupName="pg")
    assert left(ec2.cloud) == []


def test_stoppable_spot_cannot_enter_a_placement_group(ec2: Ec2) -> None:
    ec2.api.create_placement_group(GroupName="pg", Strategy="cluster")
    where = {"AvailabilityZone": ZONE, "GroupName": "pg"}
    for behaviour, fits in (("stop", False), ("hibernate", False), ("terminate", True)):
        spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": behaviour}
        market = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}, "Placement": where}
        assert ec2.run(**market) if fits else refusal(ec2.run, **market) == WRONG_PAIR


def test_the_type_table_is_told(ec2: Ec2) -> None:
    shown = ec2.api.describe_instance_types(InstanceTypes=["p5.48xlarge", "trn1.32xlarge"])["InstanceTypes"]
    p5 = next(one for one in shown if one["InstanceType"] == P5)
    assert (p5["NetworkInfo"]["MaximumNetworkCards"], p5["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"]) == (32, 32)
    assert p5["VCpuInfo"]["DefaultVCpus"] == 192
    assert refusal(ec2.api.describe_instance_types, InstanceTypes=["p99.24xlarge"]) == ("InvalidInstanceType", 400)
    filters = [{"Name": "instance-type", "Values": [P4D, "p5e.48xlarge"]}]
    found = ec2.api.describe_instance_type_offerings(LocationType="availability-zone", Filters=filters)
    assert {(one["InstanceType"], one["Location"]) for one in found["InstanceTypeOfferings"]} == {
        (P4D, ZONE),
        (P4D, OTHER),
    }
