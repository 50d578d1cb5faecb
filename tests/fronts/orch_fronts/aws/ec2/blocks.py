"""Capacity reservations: those of the scenario, and Capacity Blocks that are found, bought and come to their time.

Source: "Capacity Blocks for ML" (EC2 User Guide, read November 2026): 1 to 14 days, then weeks up to 182 days; up to 64
instances; begins and ends at 11:30 UTC; its instances are ended from 30 minutes before. Prices are modelled after the
price page of 2024/25.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, page, tag_facts, tag_list
from orch_fronts.aws.ec2.kinds import is_offered, limits_of
from orch_fronts.aws.ec2.network import zone_id
from orch_fronts.aws.ec2.tags import now_of, sent
from orch_fronts.aws.ec2.visit import Visit, kept, made_id, region_of
from orch_fronts.aws.ec2.words import missing, wrong_value
from orchestrator.simulator.capacity import RESERVED, used_of_reservation
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Held
from orchestrator.simulator.state import Phase, Resource

DAY = 86_400.0
TAKEN_BEFORE = 1_800.0  # seconds before the end of a block at which its instances are ended
_BEGINS = 11.5 * 3600  # seconds after midnight, UTC
_PAYMENT = 60.0  # seconds until a bought block is scheduled; modelled
_AHEAD = 56 * DAY  # how far ahead a block may begin
_MOST = 64
_PRICES = {"p5.48xlarge": 39.33, "p5e.48xlarge": 43.26, "p4d.24xlarge": 14.75, "trn1.32xlarge": 15.49}
_PRICE = 40.0  # of the others; modelled
_FILTERS = frozenset({"instance-type", "state", "availability-zone", "tag-key", "instance-match-criteria"})


def offerings(visit: Visit) -> dict[str, Any]:
    """Rules block_lasts_days_or_weeks and block_begins_at_half_past_eleven. Up to three, a day apart."""
    visit.ask()
    kind, count = str(visit.params.get("InstanceType", "")), int(visit.params.get("InstanceCount", 1))
    hours = int(visit.params["CapacityDurationHours"])
    if not kind:
        raise missing("InstanceType")
    if hours % 24 or not (hours <= 336 or hours % 168 == 0) or not 24 <= hours <= 182 * 24:
        words = f"The requested duration of {hours} hours is not supported: 1-14 days, or multiples of 7 days up to 182"
        raise wrong_value(words)
    if not 1 <= count <= _MOST:
        raise wrong_value(f"The instance count must be between 1 and {_MOST}")
    found: list[dict[str, Any]] = []
    if limits_of(kind).capacity_block and is_offered(kind, visit.region):
        found = [_offering(visit, kind, count, hours, start) for start in _starts(visit, hours)]
    shown, more = page(visit, found)
    return {"CapacityBlockOfferings": shown, **more}


def purchase(visit: Visit) -> dict[str, Any]:
    """Rule block_is_paid_then_scheduled."""
    name = str(visit.params["CapacityBlockOfferingId"])
    offered = visit.kept("offerings").get(name)
    tags = sent(visit, "capacity-reservation").get("capacity-reservation", {})
    if offered is None or offered["region"] != visit.region:
        raise AwsRefusal("InvalidCapacityBlockOfferingId.NotFound", f"The offering '{name}' does not exist")
    if offered["sold"]:
        raise AwsRefusal("CapacityBlockOfferingExpired", f"The offering '{name}' is no longer available")

    def work() -> dict[str, Any]:
        offered["sold"] = True
        made = visit.new_id("cr")
        visit.kept("blocks")[made] = offered | {"bought": visit.now, "tags": tags}
        return {"CapacityReservation": next(one for one in _all(visit) if one["CapacityReservationId"] == made)}

    return visit.changing(name, work)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("CapacityReservationIds", ())]
    every = _all(visit)
    known = {one["CapacityReservationId"] for one in every}
    for name in asked:
        if name not in known:
            raise unknown(name)
    wanted = [one for one in every if not asked or one["CapacityReservationId"] in asked]
    found, more = page(visit, chosen(visit, wanted, _facts, _FILTERS))
    return {"CapacityReservations": found, **more}


def find(visit: Visit, name: str) -> dict[str, Any]:
    """Raises AwsRefusal."""
    for one in _all(visit):
        if one["CapacityReservationId"] == name:
            return one
    raise unknown(name)


def held(cloud: SimulatedCloud) -> tuple[Held, ...]:
    """The bought blocks, as the neutral cloud counts machines."""
    every: Mapping[str, Mapping[str, Any]] = kept(cloud, "blocks")
    return tuple(
        Held(name=name, zone=one["zone"], accelerator=one["type"], amount=one["count"]) for name, one in every.items()
    )


def is_over(cloud: SimulatedCloud, resource: Resource) -> bool:
    """A launch into a block whose machines are taken now (rule block_takes_its_machines_before_its_end)."""
    one = kept(cloud, "blocks").get(resource.market.removeprefix(RESERVED))
    if one is None or resource.phase in (Phase.ENDING, Phase.ABSENT):
        return False
    return bool(cloud.state.now >= one["end"] - TAKEN_BEFORE)


def state_of(one: Mapping[str, Any], now: float) -> str:
    if one.get("failed"):
        return str(one["failed"])
    if now < one["bought"] + _PAYMENT:
        return "payment-pending"
    if now < one["start"]:
        return "scheduled"
    return "active" if now < one["end"] else "expired"


def become(cloud: SimulatedCloud, name: str, state: str) -> None:
    """For a tester: "payment-failed", "cancelled", "failed" from now on; "" = by the clock again."""
    kept(cloud, "blocks")[name]["failed"] = state


def put_into_group(cloud: SimulatedCloud, name: str, arn: str) -> None:
    """For a tester: a reservation of the scenario is in this placement group."""
    kept(cloud, "reservations in groups")[name] = arn


def tags_of(visit: Visit, name: str) -> dict[str, str]:
    one = visit.kept("blocks").get(name)
    return now_of(visit, name, one["tags"] if one else {})


def unknown(name: str) -> AwsRefusal:
    words = f"The capacity reservation ID '{name}' does not exist"
    return AwsRefusal("InvalidCapacityReservationId.NotFound", words)


def _starts(visit: Visit, hours: int) -> list[float]:
    """The first three beginnings that the range allows."""
    earliest = max(visit.now, float(visit.params.get("StartDateRange", 0.0)))
    latest = min(visit.now + _AHEAD, float(visit.params.get("EndDateRange", "inf")) - hours * 3600)
    first = earliest // DAY * DAY + _BEGINS
    found = [first + day * DAY for day in range(4)]
    return [start for start in found if earliest <= start <= latest][:3]


def _offering(visit: Visit, kind: str, count: int, hours: int, start: float) -> dict[str, Any]:
    zones = visit.zones()
    zone = zones[int(start // DAY) % len(zones)]
    fee = f"{_PRICES.get(kind, _PRICE) * count * hours:.4f}"
    name = made_id("cbo", zone, kind, str(count), str(hours), str(start))
    end = start + hours * 3600
    kept_one = {"region": visit.region, "zone": zone, "type": kind, "count": count, "start": start, "end": end}
    visit.kept("offerings").setdefault(name, kept_one | {"sold": False})
    return {
        "CapacityBlockOfferingId": name,
        "InstanceType": kind,
        "AvailabilityZone": zone,
        "InstanceCount": count,
        "StartDate": start,
        "EndDate": end,
        "CapacityBlockDurationHours": hours,
        "CapacityBlockDurationMinutes": hours * 60,
        "UpfrontFee": fee,
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }


def _all(visit: Visit) -> list[dict[str, Any]]:
    """Of the region: those of the scenario are active, without an end."""
    bought: Mapping[str, Mapping[str, Any]] = visit.kept("blocks")
    reserved = [
        _shown(visit, one, {"State": "active", "ReservationType": "default", "EndDateType": "unlimited"})
        for one in visit.cloud.scenario.reservations
        if one.name not in bought and region_of(visit.cloud, one.zone) == visit.region
    ]
    for name, one in bought.items():
        if one["region"] != visit.region:
            continue
        times = {"StartDate": one["start"], "EndDate": one["end"], "EndDateType": "limited"}
        more = {"State": state_of(one, visit.now), "ReservationType": "capacity-block", "CreateDate": one["bought"]}
        reserved.append(
            _shown(visit, Held(name=name, zone=one["zone"], accelerator=one["type"], amount=one["count"]), more | times)
        )
    return reserved


def _shown(visit: Visit, one: Held, more: Mapping[str, Any]) -> dict[str, Any]:
    group = visit.kept("reservations in groups").get(one.name)
    free = one.amount - used_of_reservation(visit.cloud.host_world(), one)
    shown = {
        "CapacityReservationId": one.name,
        "CapacityReservationArn": visit.arn("capacity-reservation", one.name),
        "OwnerId": visit.account,
        "InstanceType": one.accelerator,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": one.zone,
        "AvailabilityZoneId": zone_id(visit, one.zone),
        "Tenancy": "default",
        "TotalInstanceCount": one.amount,
        "AvailableInstanceCount": max(0, free) if more["State"] == "active" else 0,
        "InstanceMatchCriteria": "targeted",
        "CreateDate": visit.cloud.state.began,
        "StartDate": visit.cloud.state.began,
        "PlacementGroupArn": group,
        "Tags": tag_list(tags_of(visit, one.name)),
    }
    return shown | dict(more)


def _facts(one: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
    names = {"instance-type": "InstanceType", "state": "State", "availability-zone": "AvailabilityZone"}
    plain: dict[str, Sequence[str]] = {key: [str(one[name])] for key, name in names.items()}
    return plain | {"instance-match-criteria": ["targeted"]} | tag_facts(tags)
