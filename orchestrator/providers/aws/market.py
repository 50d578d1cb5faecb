"""How instances are paid for, in the words of RunInstances, and what a type cannot be had as. Pure."""

from __future__ import annotations

import re

from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import CannotStopError, UserError
from orchestrator.slices import CapacityBlock, Market, OnDemand, Reservation, Spot

MOST_IN_BLOCK = 64  # instances ("Capacity Blocks for ML", EC2 User Guide, 2026)
_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")


def check(name: str, instance: Ec2Instance | None, market: Market, hosts: int) -> None:
    """Raises UserError for what AWS does not sell. instance: None for a type that the table does not have."""
    if not isinstance(market, OnDemand | Spot | Reservation | CapacityBlock):
        raise UserError(
            f"EC2 sells no machines as '{market}'",
            "it has on demand, spot, reservations and Capacity Blocks",
            "remove provisioning, or: use_spot: true",
        )
    if isinstance(market, OnDemand) and instance is not None and not instance.on_demand:
        raise UserError(
            f"{name} is not sold on demand",
            "AWS sells it as spot and in Capacity Blocks",
            "use_spot: true   or: orch blocks find " + name,
        )
    reservation = reservation_of(market)
    if reservation and not _RESERVATION.fullmatch(reservation):
        raise UserError(
            f"'{reservation}' is not a reservation of EC2",
            "expected an id such as cr-0123456789abcdef0",
            "orch blocks list   or: aws ec2 describe-capacity-reservations",
        )
    if not isinstance(market, CapacityBlock):
        return
    if instance is not None and not instance.capacity_block:
        raise UserError(
            f"there are no Capacity Blocks of {name}", "AWS offers none (its tables of May 2026)", "remove provisioning"
        )
    if hosts > MOST_IN_BLOCK:
        raise UserError(
            f"{hosts} instances are too many for one Capacity Block",
            f"it has at most {MOST_IN_BLOCK}",
            f"num_nodes: {MOST_IN_BLOCK}",
        )


def reservation_of(market: Market) -> str:
    """The id of the reservation that the machines come from, "" for none."""
    match market:
        case Reservation(name=name):
            return name
        case CapacityBlock(reservation_id=name):
            return name
        case _:
            return ""


def parameters(market: Market) -> dict[str, object]:
    """What RunInstances says of it; nothing for on demand."""
    found: dict[str, object] = {}
    if isinstance(market, Spot):
        once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        found["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": once}
    if isinstance(market, CapacityBlock):
        found["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if reservation := reservation_of(market):
        target = {"CapacityReservationId": reservation}
        found["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    return found


def stop_refusal(name: str, market: Market) -> UserError | None:
    """Why such machines cannot be stopped and kept; None when they can."""
    if isinstance(market, Spot):
        why = "a one-time spot request ends with its machines (EC2 User Guide, 2026)"
    elif isinstance(market, CapacityBlock):
        why = "a Capacity Block is paid for until its end, and takes its machines then, stopped or not"
    else:
        return None
    return CannotStopError(name, why)
