"""The provider of EC2 over real boto3 and a socket: what it sends, what it sees, and what it leaves behind."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from ec2_account import FOREIGN_ZONE, INSTALLATION, READS, Ec2
from support.aws_cloud import EFA, ONE_CARD, OTHER, ZONE, aws_candidate

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    UserError,
)
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.session import AwsSession
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Pool
from orchestrator.slices import SliceState, Spot

S = SliceState
CLUSTER = aws_candidate(EFA, hosts=2)  # with a placement group and Elastic IPs


def refuse(ec2: Ec2, kind: FaultKind, call: str = "create") -> None:
    ec2.rule(faults=(Fault(call=call, kind=kind, nth=(1,)),))


def test_what_is_sent_is_what_was_planned(ec2: Ec2) -> None:
    spec = ec2.spec(CLUSTER)
    ec2.create(spec)
    planned = [one.method for one in PLANNER.create_request(spec).in_order if not one.method.startswith(READS)]
    assert ec2.changes() == planned[: planned.index("RunInstances") + 1]
    assert ec2.settled().state is S.READY
    assert ec2.changes() == planned
    ec2.provider().end("c-1")
    assert ec2.settled().state is S.ABSENT
    ends = PLANNER.end_request("c-1", CLUSTER).in_order
    assert set(ec2.changes()[len(planned) :]) == {one.method for one in ends if not one.method.startswith(READS)}
    assert ec2.left() == {}


def test_every_host_has_its_own_place_and_key(ec2: Ec2) -> None:
    ec2.create(ec2.spec(CLUSTER))
    view = ec2.settled()
    keys = ec2.keys_for(2)
    assert [host.rank for host in view.hosts] == [0, 1]
    assert [host.host_key for host in view.hosts] == list(keys.host_public)
    assert len({host.internal_ip for host in view.hosts}) == 2
    addresses = ec2.calls().every("DescribeAddresses", "Addresses", {})
    led = {one["PublicIp"]: one["PrivateIpAddress"] for one in addresses}
    assert led == {host.host: host.internal_ip for host in view.hosts}


def test_an_elastic_ip_for_the_head_alone(ec2: Ec2) -> None:
    ec2.create(ec2.spec(aws_candidate(EFA, hosts=2, access="eip")))
    view = ec2.settled()
    (address,) = ec2.calls().every("DescribeAddresses", "Addresses", {})
    assert (address["PublicIp"], address["PrivateIpAddress"]) == (view.hosts[0].host, view.hosts[0].internal_ip)
    assert view.hosts[1].host == view.hosts[1].internal_ip


def test_a_single_host_has_a_public_address_of_its_own(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    assert "AllocateAddress" not in ec2.changes()
    assert "CreatePlacementGroup" not in ec2.changes()
    (host,) = ec2.settled().hosts
    assert host.host != host.internal_ip


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER, FaultKind.THROTTLED])
def test_an_elastic_ip_that_cannot_be_led_to_the_head_is_tried_again(ec2: Ec2, kind: FaultKind) -> None:
    refuse(ec2, kind, "associate-address")
    ec2.create(ec2.spec(CLUSTER))
    view = ec2.settled()
    assert view.state is S.READY
    addresses = ec2.calls().every("DescribeAddresses", "Addresses", {})
    assert {host.host for host in view.hosts} == {one["PublicIp"] for one in addresses}


def test_the_group_lets_in_this_computer_only(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    (group,) = [
        one
        for one in ec2.calls().every("DescribeSecurityGroups", "SecurityGroups", {})
        if one["GroupName"] != "default"
    ]
    (ssh,) = [rule for rule in group["IpPermissions"] if rule.get("FromPort") == 22]
    assert [one["CidrIp"] for one in ssh["IpRanges"]] == ["127.0.0.1/32"]


@pytest.mark.parametrize("candidate", [aws_candidate(), CLUSTER], ids=["one host", "a cluster"])
def test_asked_again_by_another_process_it_is_the_same_slice(ec2: Ec2, candidate: object) -> None:
    spec = ec2.spec(candidate)  # type: ignore[arg-type]  # a parameter of pytest has no type
    ec2.create(spec)
    made = ec2.left()
    ec2.create(spec, ec2.provider())
    (ec2.state / "aws" / "c-1.json").unlink()  # its record is lost with everything that it knew
    ec2.create(spec, ec2.provider())
    assert ec2.left() == made
    assert ec2.settled().state is S.READY


@pytest.mark.parametrize(
    ("kind", "call", "error"),
    [
        (FaultKind.NO_CAPACITY, "create", CapacityError),
        (FaultKind.DENIED, "create", AccessError),
        (FaultKind.DENIED, "allocate-address", AccessError),
        (FaultKind.DENIED, "create-placement-group", AccessError),
        (FaultKind.DENIED, "authorize-security-group-egress", AccessError),
        (FaultKind.DENIED, "create-security-group", AccessError),
        (FaultKind.DENIED, "describe-subnets", AccessError),
    ],
)
def test_what_is_refused_leaves_nothing_behind(ec2: Ec2, kind: FaultKind, call: str, error: type[OrchError]) -> None:
    refuse(ec2, kind, call)
    with pytest.raises(error) as caught:
        ec2.create(ec2.spec(CLUSTER))
    assert type(caught.value) is error
    assert caught.value.next_step
    assert ec2.left() == {}
    assert ec2.provider().finish("c-1").state is S.ABSENT
    ec2.create(ec2.spec(CLUSTER))
    assert ec2.settled().state is S.READY


def test_what_cannot_be_taken_away_after_a_refusal_has_to_be_ended(ec2: Ec2) -> None:
    faults = (
        Fault(call="create", kind=FaultKind.NO_CAPACITY, nth=(1,)),
        Fault(call="release-address", kind=FaultKind.DENIED, nth=(1,)),
    )
    ec2.rule(faults=faults)
    with pytest.raises(CloudError, match="only a part"):
        ec2.create(ec2.spec(CLUSTER))
    assert ec2.left() != {}
    ec2.provider().end("c-1")
    ec2.clock.advance(100)
    assert ec2.settled().state is S.ABSENT
    assert ec2.left() == {}


@pytest.mark.parametrize(
    "call",
    [
        "create",
        "allocate-address",
        "create-placement-group",
        "create-security-group",
        "authorize-security-group-ingress",
    ],
)
@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_AFTER, FaultKind.TIMEOUT_BEFORE])
def test_an_answer_that_was_lost_makes_no_second_one(ec2: Ec2, call: str, kind: FaultKind) -> None:
    refuse(ec2, kind, call)
    acted = kind is FaultKind.TIMEOUT_AFTER or call != "create"  # of auxiliary resources the simulator drops the answer
    shown = acted and not call.startswith("authorize")
    with nullcontext() if shown else pytest.raises(CloudError, match="not known whether it acted"):
        ec2.create(ec2.spec(CLUSTER))
    assert ec2.provider().finish("c-1").state is not S.ABSENT
    ec2.create(ec2.spec(CLUSTER))
    assert ec2.settled().state is S.READY
    left = ec2.left()
    assert {kind: len(names) for kind, names in left.items()} == {
        "instances": 2, "groups": 1, "placements": 1, "addresses": 2,
    }  # fmt: skip


def test_an_effect_that_cannot_be_found_out_is_ended_by_the_next_command(ec2: Ec2) -> None:
    faults = (
        Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),
        Fault(call="list", kind=FaultKind.DENIED, nth=(1, 2)),
    )
    ec2.rule(faults=faults)
    with pytest.raises(CloudError, match="not known whether it acted"):
        ec2.create(ec2.spec(CLUSTER))
    with pytest.raises(AccessError, match="not authorized"):
        ec2.create(ec2.spec(CLUSTER))
    assert len(ec2.left()["instances"]) == 2, "the first one had acted, and nothing of it was taken back"
    ec2.provider().end("c-1")
    assert ec2.settled().state is S.ABSENT
    assert ec2.left() == {}


@pytest.mark.parametrize("kind", ["group", "placement group"])
def test_a_name_that_is_somebody_elses_is_left_as_it_is(ec2: Ec2, kind: str) -> None:
    calls = ec2.calls()
    if kind == "group":
        vpc = calls.every("DescribeVpcs", "Vpcs", {})[0]["VpcId"]
        calls.change("CreateSecurityGroup", {"GroupName": "orch-c-1", "Description": "theirs", "VpcId": vpc})
    else:
        calls.change("CreatePlacementGroup", {"GroupName": "orch-c-1", "Strategy": "cluster"})
    before = ec2.left()
    with pytest.raises(ConflictError, match="orch-c-1"):
        ec2.create(ec2.spec(CLUSTER))
    assert ec2.left() == before
    ec2.provider().end("c-1")
    assert ec2.left() == before


def test_a_zone_without_a_subnet_and_one_of_another_zone_are_no_place(ec2: Ec2) -> None:
    named = ec2.calls().every("DescribeSubnets", "Subnets", {"availability-zone": [OTHER]})[0]["SubnetId"]
    with pytest.raises(CapacityError, match=f"it is in {OTHER}"):
        ec2.create(ec2.spec(aws_candidate(subnet=named)))
    assert ec2.changes() == []


def test_machines_that_are_taken_are_told_from_those_that_were_ended(ec2: Ec2) -> None:
    ec2.create(ec2.spec(aws_candidate(market=Spot())))
    assert ec2.settled().state is S.READY
    name = next(look.name for look in ec2.cloud.live())
    ec2.cloud.do(name, Deed.PREEMPT)
    view = ec2.settled()
    assert view.state is S.PREEMPTED
    assert "Server.SpotInstanceTermination" in view.reason
    ec2.provider().end("c-1")
    assert ec2.settled().state is S.ABSENT
    assert ec2.left() == {}


def test_one_that_somebody_else_has_ended_spoils_the_slice(ec2: Ec2) -> None:
    ec2.create(ec2.spec(CLUSTER))
    ec2.settled()
    calls = ec2.calls()
    ids = sorted(one["InstanceId"] for one in calls.instances({}))
    calls.change("TerminateInstances", {"InstanceIds": ids[1:]})
    view = ec2.provider().finish("c-1")
    assert view.state is S.FAILED
    assert "Client.UserInitiatedShutdown" in view.reason
    ec2.provider().end("c-1")
    assert ec2.settled().state is S.ABSENT
    assert ec2.left() == {}


def test_the_end_takes_away_what_was_in_use_as_soon_as_it_is_not(ec2: Ec2) -> None:
    ec2.create(ec2.spec(CLUSTER))
    ec2.settled()
    provider = ec2.provider()
    provider.end("c-1")
    assert provider.finish("c-1").state is S.ENDING
    ec2.clock.advance(6)
    ec2.rule(faults=(Fault(call="delete-security-group", kind=FaultKind.UNAVAILABLE, nth=(1,)),))
    assert provider.finish("c-1").state is S.UNCLEAR
    assert provider.finish("c-1").state is S.ABSENT
    assert ec2.left() == {}
    provider.end("c-1")
    assert provider.finish("c-1").state is S.ABSENT


def test_a_group_that_something_else_is_in_holds_the_end_up(ec2: Ec2) -> None:
    ec2.create(ec2.spec(aws_candidate(ONE_CARD)))
    ec2.settled()
    group = next(
        one["GroupId"]
        for one in ec2.calls().every("DescribeSecurityGroups", "SecurityGroups", {})
        if one["GroupName"] == "orch-c-1"
    )
    ec2.create(ec2.spec(aws_candidate(security_group=group), "t-2", "d-1"))
    ec2.provider().end("c-1")
    ec2.clock.advance(6)
    view = ec2.provider().finish("c-1")
    assert view.state is S.ENDING
    assert "orch-c-1" in view.reason
    ec2.provider().end("d-1")
    ec2.clock.advance(6)
    assert ec2.settled("c-1").state is S.ABSENT


def test_it_stops_and_starts_with_all_its_hosts(ec2: Ec2) -> None:
    ec2.create(ec2.spec(CLUSTER))
    before = ec2.settled()
    provider = ec2.provider()
    provider.stop("c-1")
    assert provider.finish("c-1").state is S.STOPPING
    assert ec2.settled().state is S.STOPPED
    provider.stop("c-1")
    provider.start("c-1")
    assert provider.finish("c-1").state is S.STARTING
    after = ec2.settled()
    assert [host.alias for host in after.hosts] == [host.alias for host in before.hosts]
    assert after.hosts[0].host == before.hosts[0].host, "the Elastic IP stays"


def test_spot_machines_cannot_be_stopped_and_what_is_not_there_neither(ec2: Ec2) -> None:
    ec2.create(ec2.spec(aws_candidate(market=Spot())))
    ec2.settled()
    with pytest.raises(UserError, match="cannot be stopped"):
        ec2.provider().stop("c-1")
    with pytest.raises(NotFoundError):
        ec2.provider().stop("other-1")


def test_slices_of_every_region_are_listed_and_ended_without_a_record(ec2: Ec2, tmp_path: Path) -> None:
    ec2.create(ec2.spec(CLUSTER))
    ec2.create(ec2.spec(aws_candidate(zone=FOREIGN_ZONE), "t-2", "d-1"))
    ec2.settled()
    ec2.settled("d-1")
    other = ec2.provider(state=tmp_path / "elsewhere")
    found = {one.name: one for one in other.owned(INSTALLATION)}
    assert {name: (one.state, one.where, one.intent) for name, one in found.items()} == {
        "c-1": (S.READY, f"aws/us-east-1/{ZONE}", "t-1"),
        "d-1": (S.READY, f"aws/us-west-2/{FOREIGN_ZONE}", "t-2"),
    }
    assert other.owned("another") == ()
    assert other.finish("d-1", "t-2").state is S.UNCLEAR
    for name, token in (("c-1", "t-1"), ("d-1", "t-2")):
        other.end(name, token)
        ec2.clock.advance(6)
        assert other.observe(name, token).state is S.FAILED, "its groups were left"
        assert [one.state for one in other.owned(INSTALLATION) if one.name == name] == [S.FAILED]
        assert other.finish(name, token).state is S.FAILED, "what was there before they were deleted"
        assert other.observe(name, token).state is S.ABSENT
        assert [one for one in other.owned(INSTALLATION) if one.name == name] == []
    assert ec2.left() == ec2.left("us-west-2") == {}


def test_of_two_slices_of_one_name_only_the_meant_one_is_ended(ec2: Ec2, tmp_path: Path) -> None:
    """Two installations, or one whose records were lost. Their groups are in two regions, so the names can be taken."""
    ec2.create(ec2.spec(aws_candidate(zone=FOREIGN_ZONE), "theirs"), ec2.provider(state=tmp_path / "theirs"))
    ec2.create(ec2.spec(aws_candidate(), "ours"))
    assert ec2.settled().state is S.READY
    ec2.provider().end("c-1", "theirs")
    ec2.clock.advance(6)
    assert ec2.provider().finish("c-1", "ours").state is S.READY
    assert "instances" not in ec2.left("us-west-2")
    ec2.provider().end("c-1", "ours")
    assert ec2.settled().state is S.ABSENT


def test_a_region_that_does_not_answer_is_no_empty_list(ec2: Ec2) -> None:
    ec2.create(ec2.spec())
    ec2.rule(faults=(Fault(call="describe-placement-groups", kind=FaultKind.DENIED, nth=(2, 3, 4, 5)),))
    with pytest.raises(AccessError):
        ec2.provider().owned(INSTALLATION)
    assert ec2.provider().finish("nobody-1").state is S.UNCLEAR


def test_a_look_that_misses_what_is_new_is_no_absence(ec2: Ec2) -> None:
    ec2.rule(lag=20.0)
    ec2.create(ec2.spec())
    provider = ec2.provider()
    for _ in range(30):
        assert provider.finish("c-1").state in (S.CREATING, S.READY)
        ec2.clock.advance(1)
    assert ec2.settled().state is S.READY


def test_the_end_of_what_is_not_shown_yet_comes_to_its_end(ec2: Ec2) -> None:
    ec2.rule(lag=20.0)
    ec2.create(ec2.spec())
    provider = ec2.provider()
    for _ in range(10):
        provider.end("c-1")
        ec2.clock.advance(12)
        if provider.finish("c-1").state is S.ABSENT:
            break
    assert provider.finish("c-1").state is S.ABSENT
    assert ec2.left() == {}


@pytest.mark.parametrize("lost", [False, True], ids=["with its record", "without"])
def test_an_end_that_hangs_is_asked_for_again(ec2: Ec2, tmp_path: Path, *, lost: bool) -> None:
    ec2.create(ec2.spec())
    ec2.settled()
    provider = ec2.provider(state=tmp_path / "elsewhere" if lost else None)
    ec2.rule(faults=(Fault(call="end", kind=FaultKind.STUCK, nth=(1,)),))
    provider.end("c-1", "t-1")
    ec2.clock.advance(3600)
    assert provider.finish("c-1", "t-1").state is S.ENDING
    for _ in range(2):  # the machines, and what they were in
        provider.end("c-1", "t-1")
        ec2.clock.advance(6)
    assert provider.finish("c-1", "t-1").state is S.ABSENT
    assert ec2.left() == {}


def test_no_capacity_in_the_zone_is_told_with_the_words_of_aws(ec2: Ec2) -> None:
    ec2.rule(pools=(Pool(zone=ZONE, accelerator=EFA, amount=1),))
    with pytest.raises(CapacityError) as caught:
        ec2.create(ec2.spec(CLUSTER))
    assert "InsufficientInstanceCapacity" in caught.value.why
    assert ec2.changes().count("RunInstances") == 1


def test_without_credentials_it_says_so(ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(AccessError, match="no AWS credentials"):
        AwsSession().check()
    with pytest.raises(UserError, match="The config profile \\(work\\)"):
        AwsSession("work")


def test_the_same_command_later_asks_for_the_same_image(ec2: Ec2) -> None:
    """A newer image between two tries would make another request of it, which EC2 refuses for a token it knows."""
    refuse(ec2, FaultKind.TIMEOUT_BEFORE)
    with pytest.raises(CloudError):
        ec2.create(ec2.spec(CLUSTER))
    ec2.create(ec2.spec(CLUSTER))
    assert ec2.asked().count("GetParameter") == 1


def test_another_candidate_for_a_token_that_is_known_finds_its_machines(ec2: Ec2) -> None:
    ec2.create(ec2.spec(aws_candidate()))
    (ec2.state / "aws" / "c-1.json").unlink()
    other = aws_candidate(image="/aws/service/neuron/dlami/jax-0.10/ubuntu-24.04/latest/image_id")
    ec2.create(ec2.spec(other))
    assert len(ec2.left()["instances"]) == 1
    assert ec2.settled().state is S.READY
