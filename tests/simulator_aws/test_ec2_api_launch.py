"""RunInstances by boto3: tokens, room, zones, quotas, reservations, and what a launch carries."""

from __future__ import annotations

import base64

import pytest
from ec2_support import (
    AMI,
    FAR,
    IMAGE,
    OTHER,
    OTHER_REGION,
    P4D,
    P5,
    REGION,
    ZONE,
    Ec2,
    Make,
    efa,
    refusal,
    tags,
    words_of,
)

from orch_fronts.aws.ec2.blocks import put_into_group
from orch_fronts.aws.images import by_parameter
from orchestrator.simulator.scenario import Held, Pool, Quota, Zone

ONE = {"ImageId": AMI, "InstanceType": P4D, "MinCount": 1, "MaxCount": 1}


def test_same_token_answers_the_same_instances(ec2: Ec2) -> None:
    first = ec2.run(2, ClientToken="t-1")
    ec2.clock.advance(41)
    again = ec2.run(2, ClientToken="t-1")
    assert [one["InstanceId"] for one in again] == [one["InstanceId"] for one in first]
    assert {one["State"]["Name"] for one in again} == {"running"}
    assert [one["AmiLaunchIndex"] for one in again] == [0, 1]
    assert [one["InstanceId"] for one in ec2.run(2, ClientToken="t-2")] != [one["InstanceId"] for one in first]
    assert len(ec2.look()) == 4


def test_same_token_with_other_parameters_is_refused(ec2: Ec2) -> None:
    ec2.run(2, ClientToken="t-1")
    other = {"InstanceType": P5}, {"TagSpecifications": tags("instance", a="b")}, {"UserData": "x"}
    for changed in other:
        assert refusal(ec2.run, count=2, ClientToken="t-1", **changed) == ("IdempotentParameterMismatch", 400)
    assert refusal(ec2.run, count=3, ClientToken="t-1") == ("IdempotentParameterMismatch", 400)
    assert len(ec2.look()) == 2


def test_token_is_of_one_zone(ec2: Ec2) -> None:
    here = ec2.run(ClientToken="t-1")
    there = ec2.run(ClientToken="t-1", Placement={"AvailabilityZone": OTHER})
    far = ec2.run(
        region=OTHER_REGION, ClientToken="t-1", ImageId=_ami(OTHER_REGION), Placement={"AvailabilityZone": FAR}
    )
    assert len({one["InstanceId"] for one in (*here, *there, *far)}) == 3
    again = ec2.run(ClientToken="t-1", Placement={"AvailabilityZone": OTHER})
    assert again[0]["InstanceId"] == there[0]["InstanceId"]
    assert len(ec2.cloud.made()) == 3


def test_after_the_end_the_token_is_refused(ec2: Ec2) -> None:
    first = ec2.running(ClientToken="t-1")[0]["InstanceId"]
    ec2.terminate(first)
    ec2.clock.advance(21)
    assert refusal(ec2.run, ClientToken="t-1") == ("IdempotentInstanceTerminated", 400)
    assert len(ec2.cloud.made()) == 1
    ec2.clock.advance(86_400)
    assert ec2.run(ClientToken="t-1")[0]["InstanceId"] != first  # by then the token is forgotten


def test_between_least_and_most(make_ec2: Make) -> None:
    ec2 = make_ec2(pools=(Pool(zone=ZONE, accelerator=P4D, amount=3),))
    assert len(ec2.run(MinCount=2, MaxCount=5, ClientToken="t-1")) == 3
    assert len(ec2.run(MinCount=2, MaxCount=5, ClientToken="t-1")) == 3
    assert refusal(ec2.run, MinCount=1, MaxCount=5) == ("InsufficientInstanceCapacity", 500)
    for least, most in ((0, 1), (3, 2)):
        assert refusal(ec2.run, MinCount=least, MaxCount=most)[0] == "InvalidParameterValue"


def test_no_capacity_is_a_server_error(make_ec2: Make) -> None:
    ec2 = make_ec2(pools=(Pool(zone=ZONE, accelerator=P4D, amount=1), Pool(zone=OTHER, accelerator=P4D, amount=1)))
    assert refusal(ec2.run, count=2) == ("InsufficientInstanceCapacity", 500)
    assert f"({ZONE})" in words_of(ec2.run, count=2)
    assert f"choosing {OTHER}." in words_of(ec2.run, count=2)
    assert ec2.look() == []
    ec2.run(1)


def test_type_is_offered_in_some_zones(make_ec2: Make) -> None:
    ec2 = make_ec2(pools=(Pool(zone=OTHER, accelerator=P4D, amount=4), Pool(zone=ZONE, accelerator=P5, amount=4)))
    assert refusal(ec2.run) == ("Unsupported", 400)
    assert f"choosing {OTHER}." in words_of(ec2.run)
    assert refusal(ec2.run, InstanceType="p5e.48xlarge", InstanceMarketOptions={"MarketType": "spot"}) == (
        "Unsupported",
        400,
    )  # us-east-1 has none
    anywhere = ec2.api.run_instances(**ONE)["Instances"][0]
    assert anywhere["Placement"]["AvailabilityZone"] == OTHER


def test_type_without_on_demand_is_unsupported(make_ec2: Make) -> None:
    only = "us-west-2c"  # the one zone of the region that offers it
    ec2 = make_ec2(zones=(Zone(only, OTHER_REGION),))
    there = {"region": OTHER_REGION, "ImageId": _ami(OTHER_REGION), "Placement": {"AvailabilityZone": only}}
    assert refusal(ec2.run, InstanceType="p5e.48xlarge", **there) == ("Unsupported", 400)
    spot = ec2.run(InstanceType="p5e.48xlarge", InstanceMarketOptions={"MarketType": "spot"}, **there)
    assert spot[0]["InstanceLifecycle"] == "spot"


def test_unknown_type_is_refused(ec2: Ec2) -> None:
    assert refusal(ec2.run, InstanceType="p99.24xlarge") == ("InvalidParameterValue", 400)
    assert ec2.run(InstanceType="t3.micro")[0]["InstanceType"] == "t3.micro"


def test_quota_counts_against_the_region(make_ec2: Make) -> None:
    ec2 = make_ec2(
        quotas=(
            Quota(region=REGION, accelerator=P4D, amount=2, market="on-demand"),
            Quota(region=REGION, accelerator=P4D, amount=1, market="spot"),
        )
    )
    ec2.run(2)
    assert refusal(ec2.run) == ("VcpuLimitExceeded", 400)
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    ec2.run(1, **spot)
    assert refusal(ec2.run, **spot) == ("MaxSpotInstanceCountExceeded", 400)


def test_reservation_fits_its_zone_and_type(make_ec2: Make) -> None:
    ec2 = make_ec2(
        reservations=(Held(name="cr-0123456789abcdef0", zone=ZONE, accelerator=P4D, amount=2),),
        pools=(Pool(zone=ZONE, accelerator=P4D, amount=0),),
    )
    spec = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}
    target = {"CapacityReservationSpecification": spec}
    full = ("ReservationCapacityExceeded", 400)
    assert refusal(ec2.run, count=3, **target) == full
    assert refusal(ec2.run, InstanceType="p4de.24xlarge", **target) == full
    assert refusal(ec2.run, Placement={"AvailabilityZone": OTHER}, **target) == full
    assert ec2.run(2, **target)[0]["CapacityReservationId"] == "cr-0123456789abcdef0"
    assert refusal(ec2.run, **target) == full
    shown = ec2.api.describe_capacity_reservations()["CapacityReservations"][0]
    assert (shown["State"], shown["TotalInstanceCount"], shown["AvailableInstanceCount"]) == ("active", 2, 0)
    put_into_group(ec2.cloud, "cr-0123456789abcdef0", "arn:aws:ec2:us-east-1:123456789012:placement-group/theirs")
    shown = ec2.api.describe_capacity_reservations()["CapacityReservations"][0]
    assert shown["PlacementGroupArn"].endswith("/theirs")
    absent = {"CapacityReservationTarget": {"CapacityReservationId": "cr-00000000000000000"}}
    code, _ = refusal(ec2.run, CapacityReservationSpecification=absent)
    assert code == "InvalidCapacityReservationId.NotFound"


@pytest.mark.parametrize(
    ("preference", "fits"), [("open", False), ("none", False), ("capacity-reservations-only", True)]
)
def test_target_wants_no_preference(make_ec2: Make, preference: str, fits: bool) -> None:
    ec2 = make_ec2(reservations=(Held(name="cr-1", zone=ZONE, accelerator=P4D, amount=2),))
    spec = {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}, "CapacityReservationPreference": preference}
    if fits:
        assert len(ec2.run(CapacityReservationSpecification=spec)) == 1
    else:
        assert refusal(ec2.run, CapacityReservationSpecification=spec) == ("InvalidParameterCombination", 400)


def test_user_data_has_a_limit(ec2: Ec2) -> None:
    ec2.run(UserData="x" * 16_384)
    assert refusal(ec2.run, UserData="x" * 16_385) == ("InvalidParameterValue", 400)
    record = ec2.cloud.made()[0].extra["ec2"]
    assert base64.b64decode(record["user_data"]) == b"x" * 16_384


def test_root_volume_holds_the_image(ec2: Ec2) -> None:
    def root(size: int) -> list[dict[str, object]]:
        return [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": size, "VolumeType": "gp3"}}]

    assert refusal(ec2.run, BlockDeviceMappings=root(10)) == ("InvalidBlockDeviceMapping", 400)
    shown = ec2.running(BlockDeviceMappings=[*root(200), {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 5}}])[0]
    assert [one["DeviceName"] for one in shown["BlockDeviceMappings"]] == ["/dev/sda1", "/dev/sdb"]


def test_dry_run_does_nothing(ec2: Ec2) -> None:
    assert refusal(ec2.run, DryRun=True) == ("DryRunOperation", 412)
    group = {"GroupName": "g", "Description": "d"}
    assert refusal(ec2.api.create_security_group, DryRun=True, **group) == ("DryRunOperation", 412)
    assert refusal(ec2.api.allocate_address, DryRun=True) == ("DryRunOperation", 412)
    only = ec2.running()[0]["InstanceId"]
    assert refusal(ec2.api.terminate_instances, InstanceIds=[only], DryRun=True) == ("DryRunOperation", 412)
    assert ec2.states() == ["running"]
    assert ec2.api.describe_addresses()["Addresses"] == []
    assert refusal(ec2.run, DryRun=True, InstanceType="p99.24xlarge")[0] == "InvalidParameterValue"


def test_tags_have_limits(ec2: Ec2) -> None:
    def tagged(*pairs: tuple[str, str]) -> list[dict[str, object]]:
        return [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in pairs]}]

    many = [(f"k{number}", "v") for number in range(51)]
    assert refusal(ec2.run, TagSpecifications=tagged(*many)) == ("TagLimitExceeded", 400)
    for pair in (("k" * 129, "v"), ("k", "v" * 257), ("aws:thing", "v"), ("", "v")):
        assert refusal(ec2.run, TagSpecifications=tagged(pair)) == ("InvalidParameterValue", 400)
    assert refusal(ec2.run, TagSpecifications=tagged(("k", "1"), ("k", "2"))) == ("InvalidParameterValue", 400)
    ec2.run(TagSpecifications=tagged(*many[:50]))


def test_tagged_kinds_belong_to_the_call(ec2: Ec2) -> None:
    every = [*tags("instance", a="1"), *tags("volume", a="2"), *tags("network-interface", a="3")]
    spot = tags("spot-instances-request", a="4")
    market = {"MarketType": "spot"}
    assert refusal(ec2.run, TagSpecifications=[*every, *spot]) == ("InvalidParameterValue", 400)
    assert refusal(ec2.run, TagSpecifications=tags("subnet", a="1")) == ("InvalidParameterValue", 400)
    assert refusal(ec2.run, TagSpecifications=every * 2) == ("InvalidParameterValue", 400)
    ec2.run(TagSpecifications=[*every, *spot], InstanceMarketOptions=market)
    found = ec2.api.describe_tags()["Tags"]
    assert {(one["ResourceType"], one["Key"], one["Value"]) for one in found} == {
        ("instance", "a", "1"),
        ("volume", "a", "2"),
        ("network-interface", "a", "3"),
        ("spot-instances-request", "a", "4"),
    }


def test_image_is_found_by_id_parameter_or_filter(ec2: Ec2) -> None:
    by_name = ec2.run(ImageId=f"resolve:ssm:{IMAGE}")[0]["ImageId"]
    assert by_name == ec2.run()[0]["ImageId"] == AMI
    assert refusal(ec2.run, ImageId="ami-00000000000000001") == ("InvalidAMIID.NotFound", 400)
    assert refusal(ec2.run, ImageId="nonsense") == ("InvalidAMIID.Malformed", 400)
    named = [{"Name": "name", "Values": ["Deep Learning AMI Neuron*"]}]
    sdk = [{"Name": "description", "Values": ["*Neuron SDK 2.28*"]}]
    found = ec2.api.describe_images(Owners=["amazon"], Filters=[*named, *sdk])["Images"]
    newest = max(found, key=lambda one: str(one["CreationDate"]))
    assert "2.28" in newest["Description"]
    assert newest["RootDeviceName"] == "/dev/sda1"
    assert ec2.api.describe_images(Owners=["self"])["Images"] == []
    assert ec2.api.describe_images(ImageIds=[newest["ImageId"]])["Images"] == [newest]


def test_a_launch_shows_what_was_asked_for(ec2: Ec2) -> None:
    shown = ec2.running(
        2,
        TagSpecifications=tags("instance", Name="C 1", orch_slice="c-1"),
        IamInstanceProfile={"Name": "orch-host"},
        MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
        ClientToken="t-1",
        NetworkInterfaces=efa(4, SubnetId=ec2.subnet()),
    )[1]
    assert shown["AmiLaunchIndex"] == 1
    assert shown["ClientToken"] == "t-1"
    assert {"Key": "orch-slice", "Value": "c-1"} in shown["Tags"]
    assert shown["IamInstanceProfile"]["Arn"].endswith(":instance-profile/orch-host")
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown["SubnetId"] == ec2.subnet()
    assert [look.name for look in ec2.cloud.live()] == ["c-1"]  # what scenarios and tests call it
    assert ec2.cloud.made_for("t-1")[0].labels == {"Name": "C 1", "orch-slice": "c-1"}


def test_two_launches_of_one_name_are_two(ec2: Ec2) -> None:
    for _ in range(2):
        ec2.run(TagSpecifications=tags("instance", Name="same"))
    assert len(ec2.look()) == 2
    assert [look.name for look in ec2.cloud.live()] == ["same", "same-2"]


def _ami(region: str) -> str:
    return by_parameter()[IMAGE].ami(region)
