"""The choice of machines that is made again after a loss: what is left, and in which order the candidates are tried.

It changes only the order and selection of what the plan has shown: `decide` sees candidates, as of any other run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.exits import Exit
from orchestrator.formatting import parse_deadline
from orchestrator.next_step import NextStep
from orchestrator.offers.choice import LONGEST_WAIT, Choice, Left, choose_for_rest
from orchestrator.offers.offers import Offer
from orchestrator.plan import limits
from orchestrator.plan.causes import SLICE_LOSSES
from orchestrator.plan.desired import Run, Strategy
from orchestrator.plan.observed import Observed, Outcome
from orchestrator.slices import Candidate

PATIENT = 1.25  # times the cost of the cheapest candidate: dearer ones are put off while there is time
LEAST = 0.001  # of the work is left as long as the program runs


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChoice:
    """A choice made again.

    Attributes:
        desired: The run with its candidates, which stay as they are where the budget is spent.
        spent: The end of a run whose budget is spent; None for others.
        reason: In one line.
    """

    desired: Run
    spent: Outcome | None
    reason: str


def choose_again(desired: Run, observed: Observed, *, launched: float, step: int | None) -> NewChoice:
    """Return the run with the candidates for what is left of it.

    Args:
        desired: A run whose candidates orch chose.
        observed: The present state, without a slice.
        launched: When its job was opened (epoch seconds).
        step: Of its newest checkpoint; None where none is known, as of programs without such.
    """
    offers = {variant.offer: variant.candidates for variant in desired.variants if variant.offer is not None}
    left = measure_left(desired, observed, launched=launched, step=step)
    waited = observed.now - max((launched, *(ended.at for ended in observed.ended)))
    choice = choose_for_rest(tuple(offers), left, waited=max(waited, _refuse_waiting(desired)))
    reason = choice.explain(left)
    if not choice.offers:
        return NewChoice(desired=desired, spent=_make_outcome(desired, reason), reason=reason)
    lost = [intent.candidate for intent in observed.intents if intent.cause in SLICE_LOSSES]
    elsewhere = lost[-1] if lost and desired.budgets.strategy is not Strategy.FAILOVER else None
    candidates = arrange_places(choice, offers, lost=elsewhere)
    return NewChoice(desired=replace(desired, candidates=candidates), spent=None, reason=reason)


def measure_left(desired: Run, observed: Observed, *, launched: float, step: int | None) -> Left:
    """Return what is left of work, time and money; the arguments are those of choose_again."""
    request = desired.automatic
    steps = next((variant.offer.steps for variant in desired.variants if variant.offer is not None), 1)
    done = (step or 0) / steps if steps > 1 else _share_of_time(desired, observed)
    spent = limits.dollars_spent(observed) or 0.0
    return Left(
        share=min(1.0, max(LEAST, 1 - done)),
        seconds=parse_deadline(request.by, launched) - observed.now if request and request.by else None,
        dollars=request.budget - spent if request and request.budget is not None else None,
    )


def _refuse_waiting(desired: Run) -> float:
    """Return the longest wait for a run whose search for new machines would end before it, else 0."""
    return LONGEST_WAIT if desired.budgets.capacity_wait <= LONGEST_WAIT else 0.0


def order_by_cost(candidates: Mapping[Candidate, Offer]) -> tuple[Candidate, ...]:
    """Return candidates in the order of their typical cost at the price of their place, unknown prices last."""

    return tuple(sorted(candidates, key=lambda one: _cost(one, candidates)))


def _cost(candidate: Candidate, offers: Mapping[Candidate, Offer]) -> float:
    price = candidate.price_per_hour
    return math.inf if price is None else price * offers[candidate].seconds.typical


def _share_of_time(desired: Run, observed: Observed) -> float:
    """Return the share of the work of a program whose steps are not known, by the slowest of what was estimated.

    Without checkpoints it starts again from its beginning.
    """
    if desired.checkpoint_uri is None:
        return 0.0
    done = 0.0
    for intent in observed.intents:
        variant = desired.find_variant(intent.candidate)
        if intent.generation <= observed.generation_at_open or intent.billed_from is None:
            continue
        if variant is not None and variant.offer is not None:
            until = intent.billed_until if intent.billed_until is not None else observed.now
            done += max(0.0, until - intent.billed_from) / variant.offer.seconds.high
    return done


def arrange_places(
    choice: Choice, places: Mapping[Offer, tuple[Candidate, ...]], *, lost: Candidate | None = None
) -> tuple[Candidate, ...]:
    """Return the candidates of the chosen offers, the cheapest first.

    As long as the deadline leaves time to wait, those that are much dearer than the cheapest are left out.

    Args:
        choice: The choice.
        places: The candidates of each offer for the whole run.
        lost: Where a slice was just lost: it comes behind the other places of the same offer.
    """
    known = {_identify(offer): candidates for offer, candidates in places.items()}
    found = {candidate: one for one in choice.offers for candidate in known[_identify(one)]}
    ordered = order_by_cost(found)
    if choice.can_wait:
        cheapest = _cost(ordered[0], found)
        ordered = tuple(one for one in ordered if _cost(one, found) <= PATIENT * cheapest)
    if lost not in ordered:
        return ordered
    alike = [one for one in ordered if found[one] is found[lost]]
    turned = iter(sorted(alike, key=lambda one: one == lost))
    return tuple(next(turned) if one in alike else one for one in ordered)


def _identify(offer: Offer) -> object:
    return offer.machine.provider, offer.machine.name, offer.nodes, str(offer.market)


def _make_outcome(desired: Run, reason: str) -> Outcome:
    return Outcome(
        status=Exit.BUDGET,
        code="budget",
        what=f"the budget of '{desired.cluster}' does not suffice for the rest",
        why=reason,
        next_step=NextStep(f"orch down {desired.cluster}", "or launch it again with a larger --budget"),
    )
