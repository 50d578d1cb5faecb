"""Refuse a choice in which nothing keeps the budget and the deadline, with what would do."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import UserError
from orchestrator.formatting import format_amount, format_duration
from orchestrator.offers.offers import SURE, Offer, OfferRequest


def refuse_late_or_dear(found: Sequence[Offer], chosen: Sequence[Offer], request: OfferRequest) -> None:
    """Raise which budget or deadline would do where nothing keeps both.

    Args:
        found: At least one.
        chosen: Of them, as choose_offers returns them.
        request: What limits the choice.
    """
    in_time = [one for one in found if (one.chance_in_time(request) or 0) >= SURE or request.seconds is None]
    if chosen and (request.seconds is None or chosen[0] in in_time):
        return
    by = "" if request.seconds is None else f" in {format_duration(request.seconds)}"
    what = f"nothing runs this for {format_amount(request.budget)}{by}" if request.budget else f"nothing runs this{by}"
    if in_time:
        one = min(in_time, key=lambda one: one.dollars.high)
        raise UserError(what, f"the cheapest{by} is {_name(one)}", f"--budget {one.dollars.high + 1:.0f}")
    affordable = [one for one in found if request.budget is None or one.dollars.high <= request.budget]
    one = min(affordable or found, key=lambda one: one.seconds.high)
    more = "" if affordable else f" --budget {one.dollars.high + 1:.0f}"
    raise UserError(what, f"the fastest is {_name(one)}", f"--by {_find_deadline(affordable or [one])}{more}")


def _find_deadline(offers: Sequence[Offer]) -> str:
    """Return the nearest deadline that one of the offers meets, in tens of minutes, or hours from four hours on."""
    most = min(one.seconds.high for one in offers)  # the ninetieth percentile, or about that
    step, unit, size = (600, "m", 60) if most < 4 * 3600 else (3600, "h", 3600)
    count = int(most / step) + 1
    while count > 1 and any(one.seconds.chance_below((count - 1) * step) >= SURE for one in offers):
        count -= 1
    return f"{count * step // size}{unit}"


def _name(offer: Offer) -> str:
    time_, cost = format_duration(offer.seconds.high), format_amount(offer.dollars.high, 0)
    return f"{offer.name}, {offer.market}, in up to {time_} for up to {cost}"
