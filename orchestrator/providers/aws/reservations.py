"""Reserved machines: whether a reservation has what is asked of it, and from when to when.

CapacityReservation of EC2's API, 2016-11-15 (botocore 1.44.5): State, StartDate, EndDate. Capacity Blocks end at their
EndDate, and their instances are taken from 30 minutes before it ("Capacity Blocks for ML", EC2 User Guide, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import CapacityError, UserError
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.market import reservation_of
from orchestrator.providers.aws.options import read_options
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.slices import Candidate, CapacityBlock

TAKEN_BEFORE_END = 30 * 60.0  # seconds
_COMING = frozenset({"scheduled", "pending", "assessing", "payment-pending", "delayed"})
_BLOCK = "capacity-block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """state: EC2's own word. begins, ends: seconds since the epoch, 0 where it has none."""

    identity: str
    state: str
    zone: str
    begins: float
    ends: float

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def coming(self) -> bool:
        """It has no machines yet, and will have some: a payment alone may take hours ("View Capacity Blocks", 2026)."""
        return self.state in _COMING


def look(calls: Calls, identity: str) -> Thing:
    """Raises UserError when there is no such reservation here, Refused."""
    try:
        found = calls.every(
            "DescribeCapacityReservations", "CapacityReservations", {}, CapacityReservationIds=[identity]
        )
    except Refused as refused:
        if refused.answer.kind is not Kind.NOT_FOUND:
            raise
        found = []
    if not found:
        raise UserError(
            f"there is no reservation {identity} in {calls.region}", "", "orch blocks list   shows capacity blocks"
        )
    return found[0]


def reserved(found: Thing) -> Reserved:
    return Reserved(
        identity=str(found.get("CapacityReservationId", "")),
        state=str(found.get("State", "")),
        zone=str(found.get("AvailabilityZone", "")),
        begins=_seconds(found.get("StartDate")),
        ends=_seconds(found.get("EndDate")),
    )


def checked(calls: Calls, candidate: Candidate, *, repeated: bool) -> Reserved:
    """The candidate's reservation, which has what is asked for, now or (a capacity block) later.

    repeated: what is asked for may have been made already, and be what uses it up.
    Raises UserError for one that can never serve it, CapacityError for one that is in another zone or is used up now.
    """
    identity = reservation_of(candidate.market)
    found = look(calls, identity)
    one = reserved(found)
    _check_kind(candidate, found, one)
    _check_state(candidate, one)
    _check_placement(candidate, found, identity)
    if candidate.zone and one.zone and candidate.zone != one.zone:
        where = f"{calls.region}/{one.zone}"
        raise CapacityError(f"{identity} is not in {candidate.zone}", f"it is in {one.zone}", f"infra: aws/{where}")
    total, free = int(found.get("TotalInstanceCount", 0)), int(found.get("AvailableInstanceCount", 0))
    if total < candidate.hosts:
        raise UserError(f"{identity} has {total} instances", f"{candidate.hosts} are requested", "take fewer nodes")
    if one.active and free < candidate.hosts and not repeated:
        used = f"{total - free} of its {total} instances are in use, {candidate.hosts} are requested"
        raise CapacityError(f"{identity} has {free} instances free", used, "orch status   shows what uses them")
    return one


def _check_kind(candidate: Candidate, found: Thing, one: Reserved) -> None:
    kind = str(found.get("InstanceType", ""))
    if kind != candidate.accelerator:
        raise UserError(
            f"{one.identity} is for {kind}", f"{candidate.accelerator} is requested", f"accelerators: {kind}"
        )
    block = found.get("ReservationType") == _BLOCK
    if block and not isinstance(candidate.market, CapacityBlock):
        words = "accelerator_args: {provisioning: capacity-block, reservation: " + one.identity + "}"
        raise UserError(f"{one.identity} is a capacity block", "it has to be requested as one", words)
    if not block and isinstance(candidate.market, CapacityBlock):
        words = "accelerator_args: {reservation: " + one.identity + "}"
        raise UserError(f"{one.identity} is not a capacity block", "it is an on-demand reservation", words)


def _check_state(candidate: Candidate, one: Reserved) -> None:
    if one.active or (one.coming and isinstance(candidate.market, CapacityBlock)):
        return
    if one.state in _COMING:
        raise UserError(f"{one.identity} is {one.state}", "it has no machines yet", "try again when it is active")
    raise UserError(f"{one.identity} is {one.state}", "it has no machines any more", "orch blocks find   finds others")


def _check_placement(candidate: Candidate, found: Thing, identity: str) -> None:
    """Machines that were reserved in a placement group can only be had in it."""
    name = str(found.get("PlacementGroupArn", "")).rpartition("/")[2]
    asked = read_options(candidate).placement_group
    if name and asked != name:
        what = f"placement group '{asked}' is requested" if asked else "none is requested"
        raise UserError(
            f"{identity} is in the placement group '{name}'", what, "accelerator_args: {placement_group: " + name + "}"
        )


def _seconds(moment: Any) -> float:
    if not isinstance(moment, datetime):
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def waits(one: Reserved, now: float) -> str:
    """Until when, in words: "the capacity block begins at 11:30 UTC, in 3 h 12 min"."""
    begins = datetime.fromtimestamp(one.begins, UTC)
    minutes = max(0, round((one.begins - now) / 60))
    days, hours = divmod(minutes // 60, 24)
    day = "" if minutes < 24 * 60 else f"on {begins.day} {begins:%B} "
    span = [f"{days} d" if days else "", f"{hours} h" if hours else "", f"{minutes % 60} min"]
    return f"the capacity block begins {day}at {begins:%H:%M} UTC, in {' '.join(part for part in span if part)}"
