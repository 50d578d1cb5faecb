"""The addresses that a slice's security group admits: changed one by one, repeated without harm, none of others."""

from __future__ import annotations

import pytest
from ec2_account import Ec2
from support.aws_cloud import aws_candidate

from orchestrator.errors import CloudError
from orchestrator.simulator.scenario import Fault, FaultKind

ANN, BOB = "198.51.100.7/32", "198.51.100.8/32"
CREATOR = "127.0.0.1/32"


def sources(ec2: Ec2) -> dict[str, str]:
    """The descriptions of the rules for SSH by their source, of all groups but the default one."""
    groups = ec2.calls().every("DescribeSecurityGroups", "SecurityGroups", {})
    return {
        source["CidrIp"]: source.get("Description", "")
        for group in groups
        for rule in group["IpPermissions"]
        if group["GroupName"] != "default" and rule.get("FromPort") == 22
        for source in rule["IpRanges"]
    }


def change(ec2: Ec2, admitted: dict[str, str], withdrawn: tuple[str, ...] = (), token: str = "t-1") -> None:
    ec2.provider().change_addresses("c-1", token, aws_candidate(), admitted, withdrawn)


def test_addresses_join_and_leave_beside_the_one_of_the_creator(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    change(ec2, {ANN: "a1"})
    change(ec2, {BOB: "b2"})
    assert sources(ec2) == {CREATOR: "SSH of orch", ANN: "SSH of orch, computer a1", BOB: "SSH of orch, computer b2"}
    change(ec2, {BOB: "b2"}, (ANN, CREATOR, "203.0.113.1/32"))
    assert [*sources(ec2)] == [BOB]


def test_what_is_so_already_is_not_requested_again(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    change(ec2, {ANN: "a1"})
    before = len(ec2.changes())
    change(ec2, {ANN: "a1"}, (BOB,))
    assert len(ec2.changes()) == before


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_AFTER, FaultKind.TIMEOUT_BEFORE])
def test_a_lost_answer_is_completed_by_the_same_call(ec2: Ec2, kind: FaultKind) -> None:
    ec2.create(ec2.spec())
    ec2.rule(faults=(Fault(kind=kind, call="authorize-security-group-ingress", nth=(2,)),))
    with pytest.raises(CloudError):
        change(ec2, {ANN: "a1"})
    change(ec2, {ANN: "a1"})
    assert set(sources(ec2)) == {CREATOR, ANN}


def test_the_group_of_another_request_is_left_as_it_is(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    change(ec2, {ANN: "a1"}, (CREATOR,), token="t-2")
    assert [*sources(ec2)] == [CREATOR]


def test_a_source_that_no_orch_has_added_is_not_withdrawn(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    (group,) = [
        one["GroupId"]
        for one in ec2.calls().every("DescribeSecurityGroups", "SecurityGroups", {})
        if one["GroupName"] != "default"
    ]
    by_hand = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": ANN}]}
    ec2.calls().change("AuthorizeSecurityGroupIngress", {"GroupId": group, "IpPermissions": [by_hand]})
    change(ec2, {BOB: "b2"}, (ANN,))
    assert set(sources(ec2)) == {CREATOR, ANN, BOB}


@pytest.mark.parametrize(
    ("details", "needed"),
    [
        ((), True),
        ((("ssh_cidr", "203.0.113.0/24"),), False),
        ((("security_group", "sg-0123456789abcdef0"),), False),
        ((("access", "ssm"), ("instance_profile", "orch-host")), False),
        ((("access", "private"), ("ssh_cidr", "10.0.0.0/8")), False),
        ((("jump", "ann@gate.example.org"), ("ssh_cidr", "10.0.0.0/8")), False),
    ],
)
def test_only_our_own_group_that_admits_the_caller_needs_it(
    ec2: Ec2, details: tuple[tuple[str, str], ...], needed: bool
) -> None:
    assert ec2.provider().needs_admission(aws_candidate(**dict(details))) is needed
