"""Whether a run moves to better machines while it has some (`grow: true`): what that saves, and what it costs. Pure.

The better ones are not rented beside the present ones: the run saves, its slice is ended, and the better one is asked
for. Therefore the own record of capacity has to say that it is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.formatting import format_amount, format_duration
from orchestrator.offers.choice import Left, choose_for_rest
from orchestrator.offers.estimates import HOUR, RESTART
from orchestrator.offers.offers import SURE, Offer
from orchestrator.plan import limits
from orchestrator.plan.automatic import measure_left
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Run, Variant
from orchestrator.plan.moves import Move, measure_offer_move, measure_program_move
from orchestrator.plan.observed import Observed
from orchestrator.slices import Candidate

LIKELY = 0.8  # the probability of machines, by at least five own requests, from which on the present ones are left
GAIN = 2.0  # times what the restart costs: less is not worth it
_SHARE = 0.1  # of what the rest costs on the present machines: likewise
SHORTEST_ATTEMPT = 1800.0  # seconds that an attempt lasts at least before it moves
PAUSE = 6 * HOUR  # seconds between two moves of a run


def may_grow(desired: Run, observed: Observed, *, launched: float) -> bool:
    """Return whether a run is one that may move now: it trains, has done so for a while, and has not moved lately."""
    intent = observed.current
    if not desired.grow or not desired.create or intent is None or observed.pending_end is not None:
        return False
    if desired.checkpoint_uri is None or not desired.budgets.preemptions:
        return False
    began = max((launched, *(ended.at for ended in observed.ended)))
    moved = max((ended.at for ended in observed.ended if ended.cause is EndCause.GROWN), default=-math.inf)
    return observed.now >= began + SHORTEST_ATTEMPT and observed.now >= moved + PAUSE


def explain_growth(
    desired: Run, observed: Observed, chances: Mapping[Candidate, float], *, launched: float, step: int | None
) -> str:
    """Return why the run moves to better machines now, in one line; "" where it stays.

    Args:
        desired: The run.
        observed: The present state, in which its program runs.
        chances: The probability of machines, of the candidates of which it is known.
        launched: When its job was opened (epoch seconds).
        step: Of its newest checkpoint; None for none, or where it is not known.
    """
    intent = observed.current
    present = desired.find_variant(intent.candidate) if intent is not None else None
    if step is None or present is None or not may_grow(desired, observed, launched=launched):
        return ""
    left = measure_left(desired, observed, launched=launched, step=step)
    for better in _list_better(desired, present, left):
        place = max(better.candidates, key=lambda one: chances.get(one, 0.0))
        chance = chances.get(place, 0.0)
        if chance < LIKELY:
            continue
        if present.offer is not None and better.offer is not None:
            move = measure_offer_move(observed, present.offer, better.offer, step=step, share=left.share)
        else:
            move = measure_program_move(desired, observed, present, better, place, step=step)
        if move is not None and (gain := _explain_gain(desired, observed, move, left)):
            return f"{gain}; machines within an hour: {100 * chance:.0f} %"
    return ""


def _list_better(desired: Run, present: Variant, left: Left) -> tuple[Variant, ...]:
    """Return what the run prefers to what it has, the best first.

    Of a range of nodes these are the sizes before the present one, of machines that orch chose the one that it would
    choose now. Of an own program they are the same machines, as its speed on others is not known; only more of them
    save time.
    """
    before = desired.variants[: desired.variants.index(present)]
    if desired.automatic is None and present.offer is None:
        return tuple(one for one in before if one.accelerator == present.accelerator)
    if desired.automatic is None:
        return before
    choice = choose_for_rest([one.offer for one in desired.variants if one.offer is not None], left)
    if not choice.offers:
        return ()
    first = choice.offers[0]
    return tuple(one for one in desired.variants if one is not present and one.offer and _is_same(one.offer, first))


def _is_same(one: Offer, other: Offer) -> bool:
    return (one.machine, one.nodes, one.market) == (other.machine, other.nodes, other.market)


def _explain_gain(desired: Run, observed: Observed, move: Move, left: Left) -> str:
    """Return what a move saves, in words, where that is worth the restart and within the limits; else "".

    Of a range of nodes the time that it saves is worth what the present machines cost in it; of machines that orch
    chose the money counts, and the date.
    """
    if not _is_affordable(desired, observed, move):
        return ""
    stay = move.stay.typical - RESTART.typical  # nothing is set up again
    if desired.automatic is None:
        worth = move.price * (stay - move.seconds.typical) / HOUR
    else:
        worth = move.stay_dollars - move.dollars.typical
    is_late = left.seconds is not None and move.stay.chance_below(left.seconds) < SURE
    saves_date = is_late and left.seconds is not None and move.seconds.chance_below(left.seconds) >= SURE
    restart = GAIN * move.better_price * RESTART.typical / HOUR
    if not saves_date and worth <= max(_SHARE * move.stay_dollars, restart):
        return ""
    what = f"{move.better}: about {format_duration(move.seconds.typical)} and {format_amount(move.dollars.typical, 0)}"
    kept = f"{format_duration(stay)} and {format_amount(move.stay_dollars, 0)} on {move.present}"
    return f"{what}, in place of {kept}{move.assumed}"


def _is_affordable(desired: Run, observed: Observed, move: Move) -> bool:
    """Return whether a move stays within limits.max_cost. There are never two slices at the same time."""
    if desired.limits.dollars is None:
        return True
    spent = limits.dollars_spent(observed)
    return spent is not None and spent + move.dollars.high <= desired.limits.dollars
