"""Limits of time and money. The dead-man timer on the hosts enforces the same ones without orch."""

from __future__ import annotations

import time

from orchestrator.formatting import format_amount
from orchestrator.hosts import EndedBy
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Observed
from orchestrator.slices import SliceState

HOUR = 3600.0
LIMIT_CODE = "limit"  # code of an outcome that ends the machines, whatever the teardown policy
TIMER_EARLY = 120.0  # seconds by which the timer on the hosts may be earlier: it uses their clocks
_ENDED_OR_STOPPING = frozenset(
    {SliceState.ABSENT, SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPING, SliceState.STOPPED}
)


def hours_up(observed: Observed) -> float:
    """Return the hours since the first machine of the cluster existed."""
    born = [intent.billed_from for intent in observed.intents if intent.billed_from is not None]
    return max(0.0, observed.now - min(born)) / HOUR if born else 0.0


def dollars_spent(observed: Observed) -> float | None:
    """Return the cost of all slices of the cluster, and of the run on other ones, by list price.

    None when a price is not known.
    """
    if observed.spent_before is None:
        return None
    total = observed.spent_before
    for intent in observed.intents:
        if intent.billed_from is None:
            continue
        price = intent.candidate.price_per_hour
        if price is None:
            return None
        until = intent.billed_until if intent.billed_until is not None else observed.now
        total += price * max(0.0, until - intent.billed_from) / HOUR
    return total


def find_reached_limit(desired: Run, observed: Observed) -> str | None:
    """Return a message about the limit that is reached; None when none is."""
    limits = desired.limits
    if limits.hours is not None and hours_up(observed) >= limits.hours:
        return f"limit of {limits.hours:g} hours reached"
    if limits.dollars is not None:
        spent = dollars_spent(observed)
        if spent is not None and spent >= limits.dollars:
            return f"limit of {format_amount(limits.dollars)} reached ({format_amount(spent)} spent)"
    return None


def find_timer_end(desired: Run, observed: Observed) -> str | None:
    """Return a message when the hosts' own timer ended the machines just before the limit of hours; else None.

    This is no loss: new machines would reach the limit at the same time.
    """
    hours = desired.limits.hours
    if hours is None or (observed.current is not None and observed.slice_state not in _ENDED_OR_STOPPING):
        return None
    left = hours * HOUR - hours_up(observed) * HOUR
    if left > min(TIMER_EARLY, hours * HOUR / 10):
        return None
    return f"limit of {hours:g} hours reached: the hosts' own timer ended the machines {max(0.0, left):.0f} s early"


def find_stop_by_timer(desired: Run, observed: Observed) -> str | None:
    """Return a message when the hosts' own timer, or an orch that died since, ended the program at a limit; else None.

    The hosts keep this, so it counts whatever the clock here says, and after the limit was raised.
    """
    if not any(host.ended_by is EndedBy.LIMIT for host in observed.hosts):
        return None
    hours, dollars = desired.limits.hours, desired.limits.dollars
    named = [f"{hours:g} hours"] if hours is not None else []
    named += [format_amount(dollars)] if dollars is not None else []
    limit = f"limit of {' or '.join(named)}" if named else "a limit"
    return f"{limit} reached: the hosts' own timer ended the program"


def next_limit_at(desired: Run, observed: Observed) -> float | None:
    """Return when a limit will be reached if nothing changes (epoch seconds); None without a limit."""
    ends: list[float] = []
    limits = desired.limits
    if limits.hours is not None:
        ends.append(observed.now + (limits.hours - hours_up(observed)) * HOUR)
    spent, current = dollars_spent(observed), observed.current
    price = current.candidate.price_per_hour if current is not None else None
    if limits.dollars is not None and spent is not None and price:
        ends.append(observed.now + (limits.dollars - spent) / price * HOUR)
    return min(ends) if ends else None


def format_time(at: float, now: float) -> str:
    """Return epoch seconds as `11:30 UTC`, with the date where it is not today."""
    when, today = time.gmtime(at), time.gmtime(now)
    same_day = (when.tm_year, when.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M UTC" if same_day else "%Y-%m-%d %H:%M UTC", when)
