"""The choice among offers with what is left of work, time and money. Pure; it is made again after a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from orchestrator.formatting import format_amount, format_duration
from orchestrator.offers.offers import SURE, Offer, OfferRequest, choose_offers, find_front, make_offer
from orchestrator.slices import OnDemand

MOST_RESERVES = 3
LONGEST_WAIT = 6 * 3600.0  # seconds without machines after which none are put off
_LAST_WAIT = 3600.0  # seconds that machines on demand are put off while there is time
_DEARER = 2.0  # times the budget: within it when half of the work is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left.

    Attributes:
        share: Of the work, above 0 and at most 1.
        seconds: Until the deadline; None without one.
        dollars: Of the budget; None without one.
    """

    share: float = 1.0
    seconds: float | None = None
    dollars: float | None = None


class Verdict(StrEnum):
    """Whether the rest can be done within what is left."""

    FITS = "fits"
    LATE = "late"  # within the budget, after the deadline
    TIGHT = "tight"  # it may cost more than is left
    SPENT = "spent"  # it costs more than is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Offers for the rest of a run, in the order in which they are tried; none when the budget is spent.

    Attributes:
        offers: With time and cost of the rest.
        can_wait: Whether the deadline leaves time to wait for the cheapest of them.
    """

    offers: tuple[Offer, ...]
    verdict: Verdict
    can_wait: bool = False

    def explain(self, left: Left) -> str:
        """Return the reason in one line."""
        money = "" if left.dollars is None else format_amount(max(0.0, left.dollars))
        time = "" if left.seconds is None else format_duration(max(0.0, left.seconds))
        within = " and ".join(filter(None, (money, time)))
        rest = f"{100 * left.share:.0f} % of the work" + (f", {within}" if within else "") + " left"
        if not self.offers:
            return f"{rest}: it would cost more on any of the machines"
        first = self.offers[0]
        found = f"{rest}: {first.name}, {first.market}, about {format_duration(first.seconds.typical)}"
        found += f" and {format_amount(first.dollars.typical, 0)}"
        return found + {
            Verdict.FITS: "",
            Verdict.LATE: "; the date cannot be kept, so the cheapest is first",
            Verdict.TIGHT: "; the budget may end it before the last step",
        }.get(self.verdict, "")


def choose_for_rest(offers: Sequence[Offer], left: Left, *, waited: float = 0.0) -> Choice:
    """Return the offers for the rest of a run: those that `orch offers` would show for it, the cheapest first.

    With a deadline, machines on demand follow spot ones only when waiting for those would soon miss it.
    Where none keeps the deadline, the cheapest comes first. Where each may cost more than is left, those are taken that
    typically do not.

    Args:
        offers: For the whole run.
        left: What is left.
        waited: Seconds without machines since the loss.
    """
    seconds = None if left.seconds is None else max(left.seconds, 1.0)
    request = OfferRequest(seconds=seconds, budget=left.dollars)
    rest = [found for one in offers if (found := make_offer(one, left.share)) is not None]
    chosen = choose_offers(rest, request)
    if chosen and _keeps_deadline(chosen[0], seconds):
        return _weigh_waiting(rest, chosen, request, waited)
    if chosen:
        return Choice(offers=chosen, verdict=Verdict.LATE)
    affordable = [one for one in rest if left.dollars is None or one.dollars.typical <= left.dollars]
    return Choice(offers=find_front(affordable), verdict=Verdict.TIGHT if affordable else Verdict.SPENT)


def _weigh_waiting(rest: Sequence[Offer], chosen: tuple[Offer, ...], request: OfferRequest, waited: float) -> Choice:
    """Return the choice; with a deadline those on demand are in it only when they are the last that keep it."""
    if request.seconds is None:
        return Choice(offers=chosen, verdict=Verdict.FITS)
    firm = choose_offers([one for one in rest if isinstance(one.market, OnDemand)], request)[:1]
    spot = tuple(takewhile(lambda one: not isinstance(one.market, OnDemand), chosen))  # no wait for what is dearer
    later = request.seconds - _LAST_WAIT
    can_wait = any(_keeps_deadline(one, later) for one in firm) if firm else _keeps_deadline(chosen[-1], later / 2)
    can_wait = can_wait and waited < LONGEST_WAIT
    offers = spot if spot and can_wait else (*chosen, *find_firm(rest, request))
    return Choice(offers=offers, verdict=Verdict.FITS, can_wait=can_wait)


def find_firm(offers: Sequence[Offer], request: OfferRequest) -> tuple[Offer, ...]:
    """Return the best machines on demand within budget and time that the choice leaves out, the cheapest first.

    Spot machines beat them in time and cost, and are not always there.
    """
    chosen = choose_offers(offers, request)
    firm = choose_offers([one for one in offers if isinstance(one.market, OnDemand)], request)
    return tuple(one for one in firm if one not in chosen and _keeps_deadline(one, request.seconds))[:MOST_RESERVES]


def find_reserves(offers: Sequence[Offer], request: OfferRequest) -> tuple[Offer, ...]:
    """Return a few offers that are faster than those of the choice, and too dear for the whole run.

    After a loss they may be what still keeps the deadline, for the rest of the run, within what is left of the budget.
    """
    if request.budget is None or request.seconds is None:
        return ()
    chosen = choose_offers(offers, request)
    fastest, most = min((one.seconds.typical for one in chosen), default=0.0), _DEARER * request.budget
    dearer = [one for one in offers if request.budget < one.dollars.high <= most and one.seconds.typical < fastest]
    return find_front(dearer)[:MOST_RESERVES]


def _keeps_deadline(offer: Offer, seconds: float | None) -> bool:
    return seconds is None or offer.seconds.chance_below(seconds) >= SURE
