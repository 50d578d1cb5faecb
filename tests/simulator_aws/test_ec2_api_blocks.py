"""Capacity Blocks by boto3: found, bought, launched into, and taken back."""

from __future__ import annotations

from typing import Any

import pytest
from ec2_support import FAR, MIDNIGHT, OTHER_REGION, P4D, P5, ZONE, Ec2, Make, refusal, tags

from orch_fronts.aws.ec2.blocks import become
from orchestrator.simulator.scenario import Pool

HOUR = 3600.0


def find(ec2: Ec2, count: int = 2, hours: int = 24, kind: str = P5, **more: Any) -> list[dict[str, Any]]:
    asked = {"InstanceType": kind, "InstanceCount": count, "CapacityDurationHours": hours, **more}
    return list(ec2.api.describe_capacity_block_offerings(**asked)["CapacityBlockOfferings"])


def buy(ec2: Ec2, **more: Any) -> dict[str, Any]:
    name = find(ec2, **more)[0]["CapacityBlockOfferingId"]
    tagged = tags("capacity-reservation", orch_installation="i-1")
    answer = ec2.api.purchase_capacity_block(
        CapacityBlockOfferingId=name, InstancePlatform="Linux/UNIX", TagSpecifications=tagged
    )
    return dict(answer["CapacityReservation"])


def into(block: dict[str, Any], **more: Any) -> dict[str, Any]:
    target = {"CapacityReservationTarget": {"CapacityReservationId": block["CapacityReservationId"]}}
    return {
        "InstanceType": block["InstanceType"],
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": target,
        "Placement": {"AvailabilityZone": block["AvailabilityZone"]},
    } | more


def state(ec2: Ec2, block: dict[str, Any]) -> str:
    ids = [block["CapacityReservationId"]]
    return str(ec2.api.describe_capacity_reservations(CapacityReservationIds=ids)["CapacityReservations"][0]["State"])


@pytest.fixture
def morning(make_ec2: Make) -> Ec2:
    """It is 08:00 UTC, and the zones have no such machines beyond what blocks hold."""
    return make_ec2(now=MIDNIGHT + 8 * HOUR, pools=(Pool(zone="*", accelerator="*", amount=0),))


def test_block_lasts_days_or_weeks(morning: Ec2) -> None:
    for hours in (24, 48, 14 * 24, 21 * 24, 182 * 24):
        assert find(morning, hours=hours, count=64)
    for hours in (12, 25, 15 * 24, 189 * 24):
        code, _ = refusal(find, ec2=morning, hours=hours)
        assert code == "InvalidParameterValue"
    assert refusal(find, ec2=morning, count=65)[0] == "InvalidParameterValue"
    assert find(morning, kind="trn1n.32xlarge") == []  # no blocks of it are sold
    assert find(morning, kind="p5e.48xlarge") == []  # not in this region


def test_block_begins_at_half_past_eleven(morning: Ec2) -> None:
    starts = [one["StartDate"].timestamp() for one in find(morning)]
    assert starts == [MIDNIGHT + day * 24 * HOUR + 11.5 * HOUR for day in range(3)]
    assert {one["UpfrontFee"] for one in find(morning)} == {f"{39.33 * 2 * 24:.4f}"}
    later = find(morning, StartDateRange=MIDNIGHT + 30 * HOUR, EndDateRange=MIDNIGHT + 80 * HOUR)
    assert [one["StartDate"].timestamp() for one in later] == [MIDNIGHT + 35.5 * HOUR]
    assert [one["CapacityBlockOfferingId"] for one in find(morning)] == [
        one["CapacityBlockOfferingId"] for one in find(morning)
    ]


def test_block_is_paid_then_scheduled(morning: Ec2) -> None:
    block = buy(morning)
    assert (block["State"], block["ReservationType"], block["TotalInstanceCount"]) == (
        "payment-pending",
        "capacity-block",
        2,
    )
    assert block["Tags"] == [{"Key": "orch-installation", "Value": "i-1"}]
    morning.clock.advance(61)
    assert state(morning, block) == "scheduled"
    morning.clock.advance(3.5 * HOUR)
    assert state(morning, block) == "active"
    morning.clock.advance(24 * HOUR)
    assert state(morning, block) == "expired"
    sold = {"CapacityBlockOfferingId": "cbo-00000000000000000", "InstancePlatform": "Linux/UNIX"}
    assert refusal(morning.api.purchase_capacity_block, **sold)[0] == "InvalidCapacityBlockOfferingId.NotFound"
    name = find(morning)[0]["CapacityBlockOfferingId"]
    again = {"CapacityBlockOfferingId": name, "InstancePlatform": "Linux/UNIX"}
    assert refusal(morning.api.purchase_capacity_block, DryRun=True, **again) == ("DryRunOperation", 412)
    morning.api.purchase_capacity_block(**again)
    assert refusal(morning.api.purchase_capacity_block, **again)[0] == "CapacityBlockOfferingExpired"


def test_block_needs_its_market_and_its_target(morning: Ec2) -> None:
    block = buy(morning)
    morning.clock.advance(4 * HOUR)
    given = into(block)
    wrong = ("InvalidParameterCombination", 400)
    for name in ("InstanceMarketOptions", "CapacityReservationSpecification"):
        assert refusal(morning.run, **{key: value for key, value in given.items() if key != name}) == wrong
    assert refusal(morning.run, count=3, **given) == ("ReservationCapacityExceeded", 400)
    other = "us-east-1b" if block["AvailabilityZone"] == ZONE else ZONE
    elsewhere = given | {"Placement": {"AvailabilityZone": other}}
    assert refusal(morning.run, **elsewhere) == ("ReservationCapacityExceeded", 400)
    assert refusal(morning.run, **(given | {"InstanceType": P4D})) == ("ReservationCapacityExceeded", 400)
    shown = morning.run(2, **given)[0]
    assert (shown["InstanceLifecycle"], shown["CapacityReservationId"]) == (
        "capacity-block",
        block["CapacityReservationId"],
    )


def test_block_is_not_there_before_its_start(morning: Ec2) -> None:
    block = buy(morning)
    early = ("InvalidCapacityReservationState", 400)
    assert refusal(morning.run, **into(block)) == early
    morning.clock.advance(3.4 * HOUR)
    assert refusal(morning.run, **into(block)) == early
    morning.clock.advance(0.2 * HOUR)
    only = morning.running(**into(block))[0]["InstanceId"]
    morning.terminate(only)
    morning.clock.advance(23.5 * HOUR)
    assert refusal(morning.run, **into(block)) == early


def test_block_takes_its_machines_before_its_end(morning: Ec2) -> None:
    block = buy(morning)
    morning.clock.advance(3.6 * HOUR)
    morning.running(2, **into(block))
    morning.clock.advance(23 * HOUR)
    assert morning.states() == ["running", "running"]
    morning.clock.advance(0.5 * HOUR)
    assert morning.states() == ["shutting-down"] * 2
    morning.clock.advance(21)
    assert morning.states() == ["terminated"] * 2
    assert morning.look()[0]["StateReason"]["Code"] == "Server.CapacityBlockExpired"
    assert state(morning, block) == "active"
    assert morning.cloud.live() == ()


def test_a_payment_may_fail(morning: Ec2) -> None:
    block = buy(morning)
    become(morning.cloud, block["CapacityReservationId"], "payment-failed")
    morning.clock.advance(4 * HOUR)
    assert state(morning, block) == "payment-failed"
    assert refusal(morning.run, **into(block)) == ("InvalidCapacityReservationState", 400)


def test_a_block_belongs_to_its_region(morning: Ec2) -> None:
    block = buy(morning)
    asked = {"CapacityReservationIds": [block["CapacityReservationId"]]}
    elsewhere = morning.at(OTHER_REGION).describe_capacity_reservations
    assert refusal(elsewhere, **asked) == ("InvalidCapacityReservationId.NotFound", 400)
    assert elsewhere()["CapacityReservations"] == []
    there = morning.at(OTHER_REGION).describe_capacity_block_offerings(
        InstanceType=P5, InstanceCount=1, CapacityDurationHours=24
    )
    assert {one["AvailabilityZone"] for one in there["CapacityBlockOfferings"]} == {FAR}
