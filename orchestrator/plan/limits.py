"""Limits of time and money, as seen from here. The dead-man timer on the hosts holds the same ones without us."""

from __future__ import annotations

import time

from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Observed
from orchestrator.slices import SliceState

HOUR = 3600.0
LIMIT = "limit"  # code of an outcome that ends the machines whatever the user asked for their time after
TIMER_EARLY = 120.0  # seconds by which the timer on the hosts may be first: it counts by their clocks
_GONE_OR_GOING = frozenset(
    {SliceState.ABSENT, SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPING, SliceState.STOPPED}
)


def hours_up(observed: Observed) -> float:
    """Since the first machine of the cluster was there."""
    born = [intent.born for intent in observed.intents if intent.born is not None]
    return max(0.0, observed.now - min(born)) / HOUR if born else 0.0


def dollars_spent(observed: Observed) -> float | None:
    """What all slices of the cluster have cost by list price; None when a price is not known."""
    total = 0.0
    for intent in observed.intents:
        if intent.born is None:
            continue
        price = intent.candidate.price_per_hour
        if price is None:
            return None
        until = intent.gone if intent.gone is not None else observed.now
        total += price * max(0.0, until - intent.born) / HOUR
    return total


def reached(desired: Run, observed: Observed) -> str | None:
    """The limit that is reached, in words; None when there is still room."""
    limits = desired.limits
    if limits.hours is not None and hours_up(observed) >= limits.hours:
        return f"limit of {limits.hours:g} hours reached"
    if limits.dollars is not None:
        spent = dollars_spent(observed)
        if spent is not None and spent >= limits.dollars:
            return f"limit of ${limits.dollars:,.2f} reached (${spent:,.2f} spent)"
    return None


def timer_was_first(desired: Run, observed: Observed) -> str | None:
    """Machines that went away just before the limit of hours: their own timer ended them. No loss, in words.

    New machines would not be of use any more either.
    """
    hours = desired.limits.hours
    if hours is None or (observed.current is not None and observed.slice_state not in _GONE_OR_GOING):
        return None
    left = hours * HOUR - hours_up(observed) * HOUR
    if left > min(TIMER_EARLY, hours * HOUR / 10):
        return None
    return f"limit of {hours:g} hours reached, but for {max(0.0, left):.0f} s: its machines are gone already"


def next_look(desired: Run, observed: Observed) -> float | None:
    """When a limit will be reached if all stays as it is (epoch seconds)."""
    ends: list[float] = []
    limits = desired.limits
    if limits.hours is not None:
        ends.append(observed.now + (limits.hours - hours_up(observed)) * HOUR)
    spent, current = dollars_spent(observed), observed.current
    price = current.candidate.price_per_hour if current is not None else None
    if limits.dollars is not None and spent is not None and price:
        ends.append(observed.now + (limits.dollars - spent) / price * HOUR)
    return min(ends) if ends else None


def moment(at: float, now: float) -> str:
    """Epoch seconds as `11:30 UTC`, with the date where it is another day."""
    when, today = time.gmtime(at), time.gmtime(now)
    same_day = (when.tm_year, when.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M UTC" if same_day else "%Y-%m-%d %H:%M UTC", when)
