"""What a run takes on the machines that it has and on better ones: of an offer, and of an own program. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.offers.estimates import HOUR, RESTART, Estimate, assess_risk, estimate_duration
from orchestrator.offers.offers import Offer, make_offer
from orchestrator.plan import limits
from orchestrator.plan.desired import Run, Variant
from orchestrator.plan.evidence import find_furthest_step
from orchestrator.plan.observed import Observed
from orchestrator.slices import Candidate

LEAST_LEFT = 0.001  # of the work is left as long as the program runs
# What each added node does, of what each present one does: assumed, as the program is not known.
_ADDED = 0.5, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The rest of a run on present machines and on better ones.

    Attributes:
        present: Name of the present machines.
        better: Name of the better ones, with their market.
        stay: Seconds of the rest on the present machines, with one restart, which does not happen.
        stay_dollars: Typical cost of `stay`.
        seconds: From the move to the last step, restart and repeated steps included.
        dollars: Cost of `seconds`.
        price: US dollars an hour of the present machines.
        better_price: Of the better ones.
        assumed: What the estimate assumes beside the table of offers, in brackets; "" for nothing.
    """

    present: str
    better: str
    stay: Estimate
    stay_dollars: float
    seconds: Estimate
    dollars: Estimate
    price: float
    better_price: float
    assumed: str = ""


def measure_offer_move(observed: Observed, present: Offer, better: Offer, *, step: int, share: float) -> Move | None:
    """Return the rest of a run whose machines orch estimated; None where it cannot be estimated any more.

    Args:
        observed: The present state.
        present: What the run has.
        better: What it may move to.
        step: Of its newest checkpoint: a move repeats what follows it.
        share: Of the work that is left, which counts for a program whose steps are not known.
    """
    reached = max(find_furthest_step(observed.hosts) or step, step)
    if present.steps > 1:
        left, again = 1 - reached / present.steps, 1 - step / better.steps
    else:
        left = share
        again = share + (1 - share) * _find_lost_share(reached, step)
    keep = make_offer(present, max(LEAST_LEFT, left))
    move = make_offer(better, max(LEAST_LEFT, again))
    if keep is None or move is None:
        return None
    price = Estimate.between(*present.price_per_hour).typical
    return Move(
        present=present.name,
        better=f"{move.name}, {move.market}",
        stay=keep.seconds,
        stay_dollars=price * (keep.seconds.typical - RESTART.typical) / HOUR,
        seconds=move.seconds,
        dollars=move.dollars,
        price=price,
        better_price=Estimate.between(*better.price_per_hour).typical,
    )


def measure_program_move(
    desired: Run, observed: Observed, present: Variant, better: Variant, place: Candidate, *, step: int
) -> Move | None:
    """Return the rest of an own program on its nodes and on more of the same; None where a price is not known.

    Its work is not known. As much is assumed to be left as it has done, but no more than its limit of hours leaves.

    Args:
        desired: The run.
        observed: The present state.
        present: What the run has.
        better: The same machines, more of them.
        place: Where those are likely.
        step: Of its newest checkpoint: a move repeats what follows it.
    """
    has = observed.current.candidate if observed.current is not None else None
    if has is None or has.price_per_hour is None or place.price_per_hour is None:
        return None
    done = _measure_done(observed, has)
    left = max(1.0, min(done, _find_seconds_left(desired, observed)))
    again = left + done * _find_lost_share(max(find_furthest_step(observed.hosts) or step, step), step)
    more = place.hosts / has.hosts - 1
    slow, fast = (again / (1 + more * added) for added in _ADDED)
    stay = _estimate_rest(Estimate.between(left, left), present, has)
    seconds = _estimate_rest(Estimate.between(fast, slow), better, place)
    if stay is None or seconds is None:
        return None
    return Move(
        present=_name(present),
        better=f"{_name(better)}, {place.market}",
        stay=stay,
        stay_dollars=has.price_per_hour * (stay.typical - RESTART.typical) / HOUR,
        seconds=seconds,
        dollars=Estimate(
            low=place.price_per_hour * seconds.low / HOUR,
            typical=place.price_per_hour * seconds.typical / HOUR,
            high=place.price_per_hour * seconds.high / HOUR,
        ),
        price=has.price_per_hour,
        better_price=place.price_per_hour,
        assumed=" (assumed: as much is left as is done)",
    )


def _find_lost_share(reached: int, step: int) -> float:
    """Return the share of the work so far that no checkpoint has."""
    return (reached - step) / reached if reached else 0.0


def _measure_done(observed: Observed, present: Candidate) -> float:
    """Return for how many seconds of the present machines the job has had machines."""
    done = 0.0
    for intent in observed.intents:
        if intent.generation > observed.generation_at_open and intent.billed_from is not None:
            until = intent.billed_until if intent.billed_until is not None else observed.now
            done += max(0.0, until - intent.billed_from) * intent.candidate.hosts / present.hosts
    return done


def _find_seconds_left(desired: Run, observed: Observed) -> float:
    hours = desired.limits.hours
    return math.inf if hours is None else (hours - limits.hours_up(observed)) * HOUR


def _estimate_rest(seconds: Estimate, variant: Variant, place: Candidate) -> Estimate | None:
    risk = assess_risk(place.hosts * place.chips_per_host, variant.nodes, place.market)
    return estimate_duration(seconds, 1, risk)


def _name(variant: Variant) -> str:
    return variant.accelerator if variant.nodes == 1 else f"{variant.nodes} x {variant.accelerator}"
