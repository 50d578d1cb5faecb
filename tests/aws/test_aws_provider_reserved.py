"""Reserved machines: a capacity block that is waited for, and reservations that do not fit."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ec2_account import Ec2
from support.aws_cloud import EFA, ONE_CARD, OTHER, ZONE, aws_candidate

from orch_fronts.aws.ec2 import blocks
from orchestrator.errors import CapacityError, CloudError, OrchError, UserError
from orchestrator.providers.aws.held_keys import read_host_public
from orchestrator.providers.aws.userdata import unpack_public
from orchestrator.simulator.scenario import Fault, FaultKind, Held
from orchestrator.slices import Candidate, CapacityBlock, Market, Reservation, SliceState

S = SliceState
DAY = 86400.0
HELD = "cr-0123456789abcdef0"


def bought(ec2: Ec2, count: int = 2) -> tuple[str, str, float]:
    """A block of a day: its id, its zone, and when it begins."""
    calls = ec2.calls()
    wanted = {"InstanceType": EFA, "InstanceCount": count, "CapacityDurationHours": 24}
    offered = calls.read("ec2", "DescribeCapacityBlockOfferings", wanted)["CapacityBlockOfferings"][0]
    given = {"CapacityBlockOfferingId": offered["CapacityBlockOfferingId"], "InstancePlatform": "Linux/UNIX"}
    made = calls.change("PurchaseCapacityBlock", given)["CapacityReservation"]
    ec2.clock.advance(61)  # it is paid for
    begins: datetime = offered["StartDate"]
    return made["CapacityReservationId"], offered["AvailabilityZone"], begins.timestamp()


def in_block(ec2: Ec2, count: int = 2, hosts: int = 2, **details: str) -> tuple[Candidate, float]:
    name, zone, begins = bought(ec2, count)
    return aws_candidate(EFA, CapacityBlock(name), hosts=hosts, zone=zone, **details), begins


def test_a_block_that_has_not_begun_is_waited_for(ec2: Ec2) -> None:
    candidate, begins = in_block(ec2)
    ec2.create(ec2.spec(candidate))
    assert "RunInstances" not in ec2.changes()
    ec2.create(ec2.spec(candidate))  # again, by the same command after a crash
    view = ec2.provider().finish("c-1")
    assert (view.state, view.until) == (S.CREATING, begins)
    said = datetime.fromtimestamp(begins, UTC)
    assert view.reason.startswith(f"the capacity block begins at {said:%H:%M} UTC, in ")
    ec2.until(begins + 1)
    ready = ec2.settled()
    assert ready.state is S.READY
    assert ready.ends == begins + DAY - 1800
    assert [host.host_key for host in ready.hosts] == held_keys(ec2)
    assert ec2.changes().count("RunInstances") == 1
    assert "CreatePlacementGroup" not in ec2.changes()
    assert [file.suffix for file in (ec2.state / "aws").iterdir()] == [".json"], "the hosts' keys are kept no longer"


def held_keys(ec2: Ec2) -> list[str]:
    """The public keys that the hosts have, from what EC2 holds."""
    return list(read_host_public(ec2.calls(), ec2.left()["instances"][0]))


@pytest.mark.parametrize("kind", [None, FaultKind.TIMEOUT_AFTER])
def test_a_waiting_block_is_started_by_another_computer_and_no_file_has_a_private_key(
    ec2: Ec2, tmp_path: Path, kind: FaultKind | None
) -> None:
    """With TIMEOUT_AFTER, the first computer has sent the request when it is lost: the hosts have its keys."""
    candidate, begins = in_block(ec2)
    ec2.create(ec2.spec(candidate))
    (kept,) = (ec2.state / "aws").iterdir()
    request = json.loads(json.loads(kept.read_text())["request"])
    assert "\n    orch_keys=\n" in request["UserData"]
    with pytest.raises(ValueError, match="no host keys"):
        unpack_public(request["UserData"])
    ec2.until(begins + 1)
    if kind is not None:
        ec2.rule(faults=(Fault(call="create", kind=kind, nth=(1,)),))
        assert ec2.provider().observe("c-1").state is S.CREATING
    shutil.copytree(ec2.state, tmp_path / "other")  # stands in for the store
    shutil.rmtree(ec2.state)
    other = ec2.provider(tmp_path / "other")
    for _ in range(100):
        ec2.clock.advance(1.0)
        view = other.observe("c-1")
        if view.due:
            view = other.finish("c-1")
        if view.state is S.READY:
            break
    assert [host.host_key for host in view.hosts] == held_keys(ec2)
    assert len(ec2.left()["instances"]) == 2


def test_a_create_half_done_by_one_computer_is_completed_by_another(ec2: Ec2, tmp_path: Path) -> None:
    lost = Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,))
    ec2.rule(faults=(lost, Fault(call="list", kind=FaultKind.DENIED, nth=(1,))))
    spec = ec2.spec(aws_candidate(EFA, hosts=2))
    with pytest.raises(CloudError, match="not known whether it acted"):
        ec2.create(spec)
    shutil.copytree(ec2.state, tmp_path / "other")
    first = ec2.keys.pop(2)
    ec2.create(spec, ec2.provider(tmp_path / "other"))
    assert ec2.keys[2] != first
    ec2.state = tmp_path / "other"
    assert [host.host_key for host in ec2.settled().hosts] == list(first.host_public) == held_keys(ec2)
    assert len(ec2.left()["instances"]) == 2


def test_the_end_of_the_block_is_no_fault_of_the_slice(ec2: Ec2) -> None:
    candidate, begins = in_block(ec2)
    ec2.until(begins + 1)
    ec2.create(ec2.spec(candidate))
    assert ec2.settled().ends == begins + DAY - 1800
    ec2.until(begins + DAY - 1790)
    view = ec2.provider().finish("c-1")
    assert view.state is S.PREEMPTED
    assert "capacity block is at its end" in view.reason
    ec2.provider().end("c-1")
    assert ec2.settled().state is S.ABSENT
    assert ec2.left() == {}


def test_a_wait_that_is_given_up_leaves_nothing(ec2: Ec2) -> None:
    candidate, begins = in_block(ec2)
    ec2.create(ec2.spec(candidate))
    ec2.provider().end("c-1")
    ec2.clock.advance(100)
    assert ec2.settled().state is S.ABSENT
    ec2.until(begins + 1)
    assert ec2.provider().finish("c-1").state is S.ABSENT
    assert ec2.left() == {}
    assert "RunInstances" not in ec2.changes()


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_AFTER, FaultKind.NO_CAPACITY, FaultKind.THROTTLED])
def test_what_goes_wrong_at_its_beginning_is_tried_again(ec2: Ec2, kind: FaultKind) -> None:
    candidate, begins = in_block(ec2)
    ec2.create(ec2.spec(candidate))
    ec2.rule(faults=(Fault(call="create", kind=kind, nth=(1,)),))
    ec2.until(begins + 1)
    assert ec2.provider().finish("c-1").state is S.CREATING
    assert ec2.settled().state is S.READY
    assert len(ec2.left()["instances"]) == 2


@pytest.mark.parametrize("state", ["payment-failed", "cancelled", "failed"])
def test_a_block_that_will_not_come_is_told(ec2: Ec2, state: str) -> None:
    candidate, _ = in_block(ec2)
    name = str(candidate.market).rpartition(" ")[2]
    ec2.create(ec2.spec(candidate))
    with ec2.access.open() as cloud:
        blocks.become(cloud, name, state)
    view = ec2.provider().finish("c-1")
    assert view.state is S.FAILED
    assert state in view.reason
    with pytest.raises(UserError, match=f"{name} is {state}"):
        ec2.create(ec2.spec(candidate, "t-2", "d-1"))


def test_an_answer_that_was_lost_does_not_use_the_block_up(ec2: Ec2) -> None:
    candidate, begins = in_block(ec2)
    ec2.until(begins + 1)
    ec2.rule(faults=(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),))
    ec2.create(ec2.spec(candidate))
    assert ec2.settled().state is S.READY


def reserve(ec2: Ec2, amount: int = 2, zone: str = ZONE, group: str = "") -> None:
    ec2.rule(reservations=(Held(name=HELD, zone=zone, accelerator=EFA, amount=amount),))
    if group:
        with ec2.access.open() as cloud:
            blocks.put_into_group(cloud, HELD, f"arn:aws:ec2:us-east-1:123456789012:placement-group/{group}")


def test_reserved_machines_are_had_where_they_are(ec2: Ec2) -> None:
    reserve(ec2)
    ec2.create(ec2.spec(aws_candidate(EFA, Reservation(HELD), hosts=2)))
    view = ec2.settled()
    assert (view.state, view.ends) == (S.READY, None)
    ec2.provider().stop("c-1")
    assert ec2.settled().state is S.STOPPED


@pytest.mark.parametrize(
    ("candidate", "error", "words"),
    [
        (aws_candidate(ONE_CARD, Reservation(HELD)), UserError, f"{HELD} is for {EFA}"),
        (aws_candidate(EFA, Reservation(HELD), hosts=3), UserError, "has 2 instances"),
        (aws_candidate(EFA, Reservation(HELD), hosts=2, zone=OTHER), CapacityError, f"it is in {ZONE}"),
        (aws_candidate(EFA, CapacityBlock(HELD), hosts=2), UserError, "is not a capacity block"),
        (aws_candidate(EFA, Reservation("cr-0123456789abcdef9"), hosts=2), UserError, "there is no reservation"),
    ],
)
def test_a_reservation_that_does_not_fit_is_told_before_anything_is_made(
    ec2: Ec2, candidate: Candidate, error: type[OrchError], words: str
) -> None:
    reserve(ec2)
    with pytest.raises(error, match=words) as caught:
        ec2.create(ec2.spec(candidate))
    assert caught.value.next_step
    assert ec2.changes() == []
    assert ec2.provider().finish("c-1").state is S.ABSENT


def test_a_block_that_is_asked_for_as_a_reservation_is_told(ec2: Ec2) -> None:
    name, zone, begins = bought(ec2)
    ec2.until(begins + 1)
    with pytest.raises(UserError, match="is a capacity block") as caught:
        ec2.create(ec2.spec(aws_candidate(EFA, Reservation(name), hosts=2, zone=zone)))
    assert "provisioning: capacity-block" in caught.value.next_step


def test_reserved_machines_that_are_in_use_are_no_capacity(ec2: Ec2) -> None:
    reserve(ec2)
    market: Market = Reservation(HELD)
    ec2.create(ec2.spec(aws_candidate(EFA, market)))
    with pytest.raises(CapacityError, match="1 of its 2 instances are in use"):
        ec2.create(ec2.spec(aws_candidate(EFA, market, hosts=2), "t-2", "d-1"))


@pytest.mark.parametrize(("asked", "fits"), [("", False), ("other", False), ("near", True)])
def test_a_reservation_in_a_placement_group_wants_that_group(ec2: Ec2, asked: str, fits: bool) -> None:
    reserve(ec2, group="near")
    for name in ("near", "other"):
        ec2.calls().change("CreatePlacementGroup", {"GroupName": name, "Strategy": "cluster"})
    details = {"placement_group": asked} if asked else {}
    spec = ec2.spec(aws_candidate(EFA, Reservation(HELD), hosts=2, **details))
    if fits:
        ec2.create(spec)
        assert ec2.settled().state is S.READY
        ec2.provider().end("c-1")
        assert ec2.settled().state is S.ABSENT
        assert ec2.left() == {"placements": ["near", "other"]}, "a group of the user's stays"
        return
    with pytest.raises(UserError, match="placement group 'near'") as caught:
        ec2.create(spec)
    assert "placement_group: near" in caught.value.next_step
