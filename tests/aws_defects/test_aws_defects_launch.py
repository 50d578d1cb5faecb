"""Faults that others have while machines are looked for and made, and orch has not. aws_defect_table.py says whose."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from aws_defects_bench import FAR, ZONES, Bench
from support.aws_cloud import EFA, ONE_CARD, aws_candidate, aws_session
from support.driving import Listener

from orch_fronts.aws.calls import AwsCall, AwsRefusal
from orchestrator.exits import Exit
from orchestrator.retries import CLOUD_NEW_PROFILE
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Pool, Quota
from orchestrator.slices import Candidate, CapacityBlock, Reservation

# Types with so many EFA interfaces, and what asks for them.
EFAS = {0: (ONE_CARD, ""), 1: ("p5.4xlarge", "best"), 4: (EFA, ""), 32: ("p5.48xlarge", "")}


def everywhere(efa: int, **details: str) -> list[Candidate]:
    """Two machines with so many EFA interfaces, in each of the three zones."""
    kind, network = EFAS[efa]
    words = {"network": network, **details}
    return [aws_candidate(kind, None, hosts=2, zone=zone, **words) for zone in ZONES]


def interfaces_of(bench: Bench) -> list[dict[str, str]]:
    """What each RunInstances says of its interfaces, by the place in the list and the name there."""
    return [
        {
            key.removeprefix("NetworkInterface."): value
            for key, value in call.params.items()
            if "NetworkInterface." in key
        }
        for call in bench.calls("RunInstances")
    ]


@pytest.mark.parametrize("efa", EFAS)
def test_every_zone_is_asked_once_however_many_interfaces_there_are(bench: Bench, efa: int) -> None:
    bench.ec2.rule(pools=tuple(Pool(zone=zone, accelerator="*", amount=0) for zone in ZONES))
    ending = bench.launch(*everywhere(efa))
    assert ending.status == Exit.CAPACITY
    assert bench.launched_in() == list(ZONES)
    kinds = [[one for key, one in each.items() if key.endswith("InterfaceType")] for each in interfaces_of(bench)]
    assert [found.count("efa-only") for found in kinds] == [efa] * 3
    assert (bench.ec2.left(), bench.recorded()) == ({}, [])


@pytest.mark.parametrize("efa", EFAS)
def test_the_last_zone_is_found_and_the_others_keep_nothing(bench: Bench, efa: int) -> None:
    bench.ec2.rule(pools=tuple(Pool(zone=zone, accelerator="*", amount=0) for zone in ZONES[:2]))
    assert bench.launch(*everywhere(efa)).status == Exit.OK
    assert bench.launched_in() == list(ZONES)
    left = bench.ec2.left()
    assert {kind: len(names) for kind, names in left.items() if kind != "addresses"} == {
        "instances": 2, "groups": 1, "placements": 1,
    }  # fmt: skip
    assert bench.down().status == Exit.OK
    assert bench.ec2.left() == {}


def test_subnets_that_are_named_are_all_tried(bench: Bench) -> None:
    subnets = bench.ec2.calls().every("DescribeSubnets", "Subnets", {"availability-zone": list(ZONES)})
    named = {str(one["AvailabilityZone"]): str(one["SubnetId"]) for one in subnets}
    bench.ec2.rule(pools=tuple(Pool(zone=zone, accelerator="*", amount=0) for zone in ZONES))
    of = [aws_candidate("p5.48xlarge", hosts=2, zone=zone, subnet=named[zone]) for zone in ZONES]
    assert bench.launch(*of).status == Exit.CAPACITY
    assert bench.launched_in() == list(ZONES)
    assert bench.ec2.left() == {}


def test_a_zone_that_has_not_the_type_is_passed_over(bench: Bench) -> None:
    """Nothing is made for a zone that lists no such type."""
    bench.ec2.rule(pools=(Pool(zone=ZONES[0], accelerator="m7i.large", amount=1),))
    ending = bench.launch(*everywhere(32))
    assert ending.status == Exit.OK, ending
    assert bench.launched_in() == [ZONES[1]]
    assert len(bench.calls("CreateSecurityGroup")) == 1
    assert {key: len(names) for key, names in bench.ec2.left().items()}["instances"] == 2


def test_a_zone_that_lists_the_type_and_refuses_it_is_passed_over(bench: Bench) -> None:
    """EC2 says Unsupported, which is no mistake of the request."""
    with refusing(bench, "RunInstances", AwsRefusal("Unsupported", "not supported in your requested zone"), times=1):
        ending = bench.launch(*everywhere(32))
    assert ending.status == Exit.OK, ending
    assert bench.launched_in() == list(ZONES[:2])


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_no_setting_of_the_users_makes_boto3_ask_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """InsufficientInstanceCapacity is HTTP 500, which the library would repeat."""
    monkeypatch.setenv("AWS_RETRY_MODE", mode)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    client, usual = bench.home.client, bench.home.client.session
    client.session = aws_session(bench.ec2.server.url)
    try:
        bench.ec2.rule(pools=tuple(Pool(zone=zone, accelerator="*", amount=0) for zone in ZONES))
        assert bench.launch(*everywhere(0)).status == Exit.CAPACITY
    finally:
        client.session = usual
    assert bench.launched_in() == list(ZONES)


@pytest.mark.parametrize("refusal", [FaultKind.NO_CAPACITY, FaultKind.DENIED])
def test_an_answer_that_was_lost_and_then_another_zone_are_not_two_slices(bench: Bench, refusal: FaultKind) -> None:
    """The first zone has made the machines, and says no when it is asked again."""
    faults = (
        Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),
        Fault(call="create", kind=refusal, nth=(2,)),
    )
    bench.ec2.rule(faults=faults)
    bench.launch(*everywhere(4))
    assert len(bench.alive()) <= 1
    assert bench.alive() == bench.recorded(), "what lives is on record, and nothing else lives"
    bench.down()
    assert (bench.ec2.left(), bench.recorded()) == ({}, [])


def test_machines_that_take_a_quarter_of_an_hour_come_up(bench: Bench) -> None:
    """The waiter of boto3 gives up after ten minutes; status checks take minutes more than the machine needs."""
    bench.ec2.rule(durations=Durations(create=900.0, end=2.0, contact=0.01, jitter=0.0))
    begin = bench.ec2.clock.now()
    ending = bench.launch(*everywhere(4))
    assert ending.status == Exit.OK, ending
    assert 900 < bench.ec2.clock.now() - begin < 1000
    assert not bench.calls("DescribeInstanceStatus")
    looks = len(bench.calls("DescribeInstances"))
    assert looks < 240, "it looks every five seconds, not all the time"


def test_a_spent_quota_is_told_with_the_command_that_asks_for_more(bench: Bench) -> None:
    """Not as a lack of machines that another try may end."""
    bench.ec2.rule(quotas=(Quota(region="us-east-1", accelerator="p5.48xlarge", amount=0),))
    listener = Listener()
    ending = bench.launch(*everywhere(32), listener=listener)
    assert ending.status == Exit.CAPACITY
    said = "\n".join([*listener.notes, str(ending.step)])
    assert "us-east-1 allows 0 of the 384 vCPUs" in said
    assert "--quota-code L-417A185B --desired-value 384 --region us-east-1" in said
    assert len(bench.calls("GetServiceQuota")) == 1, "the other zones of the region are not tried"
    assert not [call for call in bench.ec2.server.requests if call.operation.startswith(("Create", "Allocate", "Run"))]


def test_a_quota_that_is_full_is_told_with_the_command_that_asks_for_more(bench: Bench) -> None:
    """The value allows the machines, and others use it: only RunInstances says so."""
    with refusing(bench, "RunInstances", AwsRefusal("VcpuLimitExceeded", "You have requested more vCPU capacity")):
        ending = bench.launch(*everywhere(32))
    assert ending.status == Exit.CAPACITY
    assert "VcpuLimitExceeded" in str(ending.step)
    assert "--quota-code L-417A185B --desired-value 384 --region us-east-1" in str(ending.step)
    assert len(bench.calls("RunInstances")) == 1
    assert bench.ec2.left() == {}


def test_a_region_without_quota_is_skipped_for_another_one(bench: Bench) -> None:
    bench.ec2.rule(quotas=(Quota(region="us-east-1", accelerator="p5.48xlarge", amount=0),))
    assert bench.launch(*everywhere(32), aws_candidate("p5.48xlarge", hosts=2, zone=FAR)).status == Exit.OK
    assert {call.region for call in bench.calls("CreateSecurityGroup")} == {FAR[:-1]}


def test_a_quota_of_addresses_that_is_too_small_is_told_before_anything_is_made(bench: Bench) -> None:
    ending = bench.launch(aws_candidate("p5.48xlarge", hosts=6, zone=ZONES[0]))
    assert ending.status == Exit.CAPACITY
    assert "us-east-1 allows 5 of the 6 Elastic IPs" in str(ending.step) and "L-0263D0A3" in str(ending.step)
    assert not bench.calls("CreateSecurityGroup") and not bench.calls("AllocateAddress")


@pytest.mark.parametrize("operation", ["GetServiceQuota", "DescribeInstanceTypeOfferings"])
def test_what_may_not_be_asked_beforehand_does_not_stop_a_launch(bench: Bench, operation: str) -> None:
    with refusing(bench, operation, AwsRefusal("AccessDeniedException", "not authorized to perform", 403)):
        assert bench.launch(*everywhere(4)).status == Exit.OK


def test_a_region_that_does_not_offer_the_type_is_asked_once(bench: Bench) -> None:
    bench.ec2.rule(pools=tuple(Pool(zone=zone, accelerator="m7i.large", amount=1) for zone in ZONES))
    ending = bench.launch(*everywhere(4))
    assert ending.status == Exit.CAPACITY and f"us-east-1 does not offer {EFA}" in str(ending.step)
    assert len(bench.calls("DescribeInstanceTypeOfferings")) == 1


def test_what_a_reservation_has_not_is_never_bought_on_demand(bench: Bench) -> None:
    """Each request names its reservation as the one target, so that EC2 itself gives nothing else."""
    held = "cr-0123456789abcdef0"
    for market in (Reservation(held), CapacityBlock(held)):
        ending = bench.launch(aws_candidate(EFA, market, hosts=2))
        assert ending.status != Exit.OK
    assert bench.calls("RunInstances") == []
    assert bench.ec2.left() == {}


PROFILE = "Value (hosts) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


def test_an_instance_profile_that_ec2_does_not_know_is_no_lack_of_machines(bench: Bench) -> None:
    """IAM tells EC2 of a new one after some seconds; other zones would say the same."""
    with refusing(bench, "RunInstances", AwsRefusal("InvalidParameterValue", PROFILE)):
        ending = bench.launch(*everywhere(4, instance_profile="hosts"))
    assert ending.status == Exit.USAGE
    assert "Invalid IAM Instance Profile name" in str(ending.step) and "the same command again" in str(ending.step)
    assert len(bench.calls("RunInstances")) == CLOUD_NEW_PROFILE.attempts
    assert (bench.ec2.left(), bench.recorded()) == ({}, [])


def test_an_instance_profile_made_a_moment_ago_is_waited_for(bench: Bench) -> None:
    with refusing(bench, "RunInstances", AwsRefusal("InvalidParameterValue", PROFILE), times=2):
        ending = bench.launch(*everywhere(1, instance_profile="hosts"))
    assert "Invalid IAM Instance Profile name" not in str(ending.step)
    assert len(bench.calls("RunInstances")) == 3


@pytest.mark.parametrize(
    "code", ["InsufficientReservedInstanceCapacity", "SpotMaxPriceTooLow", "UnfulfillableCapacity"]
)
def test_every_code_that_means_no_machines_goes_on_to_the_next_zone(bench: Bench, code: str) -> None:
    with refusing(bench, "RunInstances", AwsRefusal(code, "not here")):
        assert bench.launch(*everywhere(0)).status == Exit.CAPACITY
    assert len(bench.calls("RunInstances")) == 3
    assert bench.ec2.left() == {}


@contextmanager
def refusing(bench: Bench, operation: str, refusal: AwsRefusal, times: int | None = None) -> Generator[None]:
    """EC2 says this to every call of the operation, or to the first ones."""
    left = [refusal] * times if times is not None else None

    class Guard:
        def admit(self, call: AwsCall, needs: object) -> None:
            if call.operation != operation or left == []:
                return
            if left:
                left.pop()
            raise refusal

    bench.ec2.server.guard = Guard()
    try:
        yield
    finally:
        bench.ec2.server.guard = None
