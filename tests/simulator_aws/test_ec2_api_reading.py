"""Filters, pages, tags, faults and refusals of the EC2 API, by boto3."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from ec2_support import AMI, OTHER, P4D, REGION, ZONE, Ec2, Make, client, efa, refusal, scenario, tags

from orch_fronts.aws.calls import AwsCall, AwsRefusal, Need
from orch_fronts.aws.ec2.rules import RULES
from orch_fronts.aws.server import AwsServer
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.calls import ReadOnlyViolation
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.scenario import Fault, FaultKind


def fits(ec2: Ec2, **filters: Any) -> list[str]:
    """Names of the instances that the filters leave."""
    asked = [{"Name": name.replace("__", ":").replace("_", "-"), "Values": values} for name, values in filters.items()]
    answer = ec2.api.describe_instances(Filters=asked)
    found = [one for each in answer["Reservations"] for one in each["Instances"]]
    return [tag["Value"] for one in found for tag in one["Tags"] if tag["Key"] == "Name"]


def test_every_rule_has_a_test_and_a_source() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_ec2_api_*.py"))
    tested = set(re.findall(r"^def test_(\w+)", text, re.MULTILINE))
    assert {rule.name for rule in RULES} <= tested
    assert all(rule.words.endswith(".") and rule.source for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_filters_join_values_by_or(ec2: Ec2) -> None:
    for name, zone, token in (("a-1", ZONE, "t-1"), ("a-2", OTHER, "t-2"), ("b*1", ZONE, "t-3")):
        where = {"Placement": {"AvailabilityZone": zone}, "ClientToken": token}
        ec2.run(TagSpecifications=tags("instance", Name=name, orch_slice=name), **where)
    assert fits(ec2, tag__Name=["a-*"]) == ["a-1", "a-2"]
    assert fits(ec2, tag__Name=["a-?", "b*1"]) == ["a-1", "a-2", "b*1"]
    assert fits(ec2, tag__Name=["?\\*1"]) == ["b*1"]
    assert fits(ec2, tag__Name=["A-*"]) == []
    assert fits(ec2, tag__Name=["a-*"], availability_zone=[OTHER]) == ["a-2"]
    assert fits(ec2, tag_key=["orch-slice"], client_token=["t-1", "t-3"]) == ["a-1", "b*1"]
    assert fits(ec2, instance_state_name=["running"]) == []
    assert fits(ec2, instance_state_name=["pending"], instance_type=[P4D]) == ["a-1", "a-2", "b*1"]
    assert refusal(fits, ec2=ec2, colour=["red"]) == ("InvalidParameterValue", 400)
    assert refusal(fits, ec2=ec2, tag__Name=["x"] * 201) == ("FilterLimitExceeded", 400)


def test_page_may_be_smaller_than_asked(make_ec2: Make) -> None:
    ec2 = make_ec2(page=3)
    ec2.run(4)
    ec2.run(2)
    first = ec2.api.describe_instances(MaxResults=5)
    assert [len(one["Instances"]) for one in first["Reservations"]] == [3]
    second = ec2.api.describe_instances(MaxResults=5, NextToken=first["NextToken"])
    assert [len(one["Instances"]) for one in second["Reservations"]] == [1, 2]
    assert first["Reservations"][0]["ReservationId"] == second["Reservations"][0]["ReservationId"]
    assert "NextToken" not in second
    pages = ec2.api.get_paginator("describe_instances").paginate()
    assert sum(len(each["Instances"]) for one in pages for each in one["Reservations"]) == 6
    assert refusal(ec2.api.describe_instances, NextToken="nonsense") == ("InvalidNextToken", 400)


def test_page_may_be_empty_and_not_the_last(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="list", kind=FaultKind.EMPTY_PAGE, nth=(1,)),))
    ec2.run()
    first = ec2.api.describe_instances()
    assert first["Reservations"] == []
    assert len(ec2.api.describe_instances(NextToken=first["NextToken"])["Reservations"]) == 1


def test_ids_and_pages_do_not_go_together(ec2: Ec2) -> None:
    only = ec2.run()[0]["InstanceId"]
    assert refusal(ec2.api.describe_instances, InstanceIds=[only], MaxResults=5) == ("InvalidParameterCombination", 400)


def test_tags_are_added_to_those_that_are_there(ec2: Ec2) -> None:
    machine = ec2.running(2, TagSpecifications=tags("instance", Name="a", keep="1"))[0]
    only, eni = machine["InstanceId"], machine["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.api.create_tags(Resources=[only, eni], Tags=[{"Key": "Name", "Value": "b"}, {"Key": "new", "Value": ""}])
    assert fits(ec2, tag__Name=["b"]) == ["b"]
    assert fits(ec2, tag__Name=["a"]) == ["a"]  # the other one of the launch
    ec2.api.delete_tags(Resources=[only], Tags=[{"Key": "keep"}])
    assert {one["Key"] for one in ec2.look(only)[0]["Tags"]} == {"Name", "new"}
    rows = ec2.api.describe_tags(Filters=[{"Name": "resource-id", "Values": [eni]}])["Tags"]
    assert {(one["Key"], one["ResourceType"]) for one in rows} == {
        ("Name", "network-interface"),
        ("new", "network-interface"),
    }
    group = ec2.api.create_security_group(GroupName="g", Description="d")["GroupId"]
    ec2.api.create_tags(Resources=[group], Tags=[{"Key": "a", "Value": "b"}])
    shown = ec2.api.describe_security_groups(Filters=[{"Name": "tag:a", "Values": ["b"]}])["SecurityGroups"]
    assert [one["GroupId"] for one in shown] == [group]
    pair = [{"Key": "a", "Value": "b"}]
    assert refusal(ec2.api.create_tags, Resources=["sg-00000000000000000"], Tags=pair) == ("InvalidID", 400)
    absent = ("InvalidInstanceID.NotFound", 400)
    assert refusal(ec2.api.create_tags, Resources=["i-0123456789abcdef0"], Tags=pair) == absent


def test_interfaces_are_listed_by_their_instance(ec2: Ec2) -> None:
    tagged = tags("network-interface", orch_slice="c-1")
    machine = ec2.running(NetworkInterfaces=efa(4), TagSpecifications=tagged)[0]
    asked = [{"Name": "attachment.instance-id", "Values": [machine["InstanceId"]]}]
    found = ec2.api.describe_network_interfaces(Filters=asked)["NetworkInterfaces"]
    assert len(found) == 5
    assert {one["TagSet"][0]["Value"] for one in found} == {"c-1"}
    assert {one["Attachment"]["InstanceId"] for one in found} == {machine["InstanceId"]}


def test_unknown_parameter_is_refused(ec2: Ec2) -> None:
    for name in ("CreateVpc", "DescribeVolumes"):
        call = AwsCall(
            service="ec2",
            region=REGION,
            method="POST",
            path="/",
            query={},
            headers={},
            body=b"",
            operation=name,
            params={},
        )
        with pytest.raises(AwsRefusal, match="InvalidAction"):
            ec2.server.ec2.handle(call)
    call = AwsCall(
        service="ec2",
        region=REGION,
        method="POST",
        path="/",
        query={},
        headers={},
        body=b"",
        operation="DescribeInstances",
        params={"Nonsense": "1"},
    )
    with pytest.raises(AwsRefusal, match="UnknownParameter"):
        ec2.server.ec2.handle(call)
    assert refusal(ec2.api.create_vpc, CidrBlock="10.0.0.0/16") == ("InvalidAction", 400)
    assert refusal(client(ec2.server.url, REGION, "sqs").list_queues)[1] == 404


@pytest.mark.parametrize(
    ("kind", "code", "http"),
    [
        (FaultKind.THROTTLED, "RequestLimitExceeded", 503),
        (FaultKind.INTERNAL, "InternalError", 500),
        (FaultKind.UNAVAILABLE, "Unavailable", 503),
        (FaultKind.DENIED, "UnauthorizedOperation", 403),
        (FaultKind.TIMEOUT_BEFORE, "ServiceUnavailable", 503),
    ],
)
def test_faults_befall_every_kind_of_call(make_ec2: Make, kind: FaultKind, code: str, http: int) -> None:
    calls = ("create", "list", "end", "stop", "start", "create-security-group", "allocate-address", "describe-subnets")
    ec2 = make_ec2(faults=tuple(Fault(call=call, kind=kind, nth=(1,)) for call in calls))
    assert refusal(ec2.run) == (code, http)
    only = ec2.run()[0]["InstanceId"]
    ec2.clock.advance(41)
    assert refusal(ec2.api.describe_instances) == (code, http)
    for call in (ec2.api.stop_instances, ec2.api.terminate_instances):
        assert refusal(call, InstanceIds=[only]) == (code, http)
    ec2.api.stop_instances(InstanceIds=[only])
    ec2.clock.advance(21)
    assert refusal(ec2.api.start_instances, InstanceIds=[only]) == (code, http)
    group = {"GroupName": "g", "Description": "d"}
    assert refusal(ec2.api.create_security_group, **group) == (code, http)
    assert refusal(ec2.api.allocate_address) == (code, http)
    assert refusal(ec2.api.describe_subnets) == (code, http)


def test_a_listing_that_would_not_be_whole_is_refused(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="list", kind=FaultKind.PARTIAL, nth=(1,)),))
    ec2.run()
    assert refusal(ec2.api.describe_instances) == ("Unavailable", 503)
    assert len(ec2.look()) == 1


def test_a_lost_answer_may_have_acted(make_ec2: Make) -> None:
    calls = ("create", "create-placement-group", "allocate-address", "end")
    ec2 = make_ec2(faults=tuple(Fault(call=call, kind=FaultKind.TIMEOUT_AFTER, nth=(1,)) for call in calls))
    assert refusal(ec2.run)[1] == 503
    assert refusal(ec2.api.create_placement_group, GroupName="pg")[1] == 503
    assert refusal(ec2.api.allocate_address)[1] == 503
    only = ec2.look()[0]["InstanceId"]
    assert refusal(ec2.api.terminate_instances, InstanceIds=[only])[1] == 503
    assert ec2.states() == ["shutting-down"]
    assert len(ec2.api.describe_placement_groups()["PlacementGroups"]) == 1
    assert len(ec2.api.describe_addresses()["Addresses"]) == 1


def test_a_late_launch_comes_when_nobody_waits(make_ec2: Make) -> None:
    ec2 = make_ec2(faults=(Fault(call="create", kind=FaultKind.LATE, nth=(1,), seconds=30.0),))
    assert refusal(ec2.run, NetworkInterfaces=efa(4))[1] == 503
    assert ec2.look() == []
    ec2.clock.advance(75)
    assert ec2.states() == ["running"]
    assert ec2.look()[0]["PrivateIpAddress"]


def test_a_connection_may_break_instead() -> None:
    access = InMemory(scenario(faults=(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),)), ManualClock())
    with AwsServer(access, cut=True) as server:
        api = client(server.url)
        with pytest.raises(ConnectionClosedError):
            api.run_instances(ImageId=AMI, InstanceType=P4D, MinCount=1, MaxCount=1)
        assert len(api.describe_instances()["Reservations"]) == 1


def test_nothing_may_change_in_a_cloud_that_is_read_only() -> None:
    access = InMemory(scenario(read_only=True), ManualClock())
    with pytest.raises(ReadOnlyViolation), AwsServer(access) as server:
        api = client(server.url)
        api.describe_instances()
        assert refusal(api.create_placement_group, GroupName="pg") == ("InternalError", 500)
    assert len(server.errors) == 1


def test_a_second_launch_is_seen_where_tokens_are_not_honoured(make_ec2: Make) -> None:
    ec2 = make_ec2(honour_tokens=False)
    for _ in range(2):
        ec2.run(ClientToken="t-1", TagSpecifications=tags("instance", Name="c-1"))
    assert len(ec2.look()) == 2
    assert len(ec2.cloud.made_for("t-1")) == 2


def test_another_process_finds_the_same_account(tmp_path: Path) -> None:
    clock = ManualClock()
    for turn in range(2):
        with AwsServer(Durable(tmp_path / "cloud.json", scenario(), clock)) as server:
            api = client(server.url)
            if turn == 0:
                api.create_placement_group(GroupName="pg")
                api.run_instances(ImageId=AMI, InstanceType=P4D, MinCount=2, MaxCount=2, ClientToken="t")
                api.allocate_address()
                clock.advance(41)
            found = api.describe_instances()["Reservations"][0]["Instances"]
            assert [one["State"]["Name"] for one in found] == ["running"] * 2
            assert len({one["PrivateIpAddress"] for one in found}) == 2
            assert len(api.describe_addresses()["Addresses"]) == len(api.describe_placement_groups()["PlacementGroups"])


def test_a_guard_is_asked_before_every_call() -> None:
    class Reader:
        """Lets pass what only reads, and keeps what was asked."""

        def __init__(self) -> None:
            self.asked: list[Need] = []

        def admit(self, call: AwsCall, needs: Any) -> None:
            self.asked += needs
            if any(not need.action.startswith("ec2:Describe") for need in needs):
                raise AwsRefusal("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)

    guard, access = Reader(), InMemory(scenario(), ManualClock())
    with AwsServer(access, guard=guard) as server:
        api = client(server.url)
        assert api.describe_instances()["Reservations"] == []
        launch = {"ImageId": AMI, "InstanceType": P4D, "MinCount": 1, "MaxCount": 1}
        tagged = {"TagSpecifications": tags("instance", orch_installation="i-1")}
        assert refusal(api.run_instances, **launch, **tagged) == ("UnauthorizedOperation", 403)
    made = [need for need in guard.asked if need.action == "ec2:RunInstances" and need.request_tags]
    assert [need.resource for need in made] == [f"arn:aws:ec2:{REGION}:123456789012:instance/*"]
    assert access.cloud.made() == ()
