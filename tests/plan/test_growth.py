"""`grow: true`: when better machines are worth leaving the present ones, and when not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_samples import candidate, sample_run

from orchestrator.catalog.accelerators import resolve
from orchestrator.offers.estimates import Estimate
from orchestrator.offers.offers import Offer, OfferTerms, make_offer
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import AutomaticChoice, Budgets, Limits, Run, Variant
from orchestrator.plan.growth import LIKELY, PAUSE, SHORTEST_ATTEMPT, explain_growth
from orchestrator.plan.moves import measure_offer_move, measure_program_move
from orchestrator.plan.observed import EndedAttempt, HostView, Intent, IntentState, Observed
from orchestrator.slices import OnDemand, Spot
from orchestrator.values import Text

HOUR, STEPS, NOW = 3600.0, 10_000, 1_800_000_000.0
BEGAN = NOW - 2 * HOUR


def offer(machine: str, hours: float, price: float) -> Offer:
    step = Estimate.between(0.9 * hours * HOUR / STEPS, 1.1 * hours * HOUR / STEPS)
    terms = OfferTerms(
        machine=resolve(machine),
        nodes=1,
        market=Spot(),
        price_per_hour=(price, price),
        price_note="",
        settings=(),
        steps=STEPS,
        step_seconds=step,
        speed_source="",
    )
    made = make_offer(terms)
    assert made is not None
    return made


SMALL, LARGE = offer("v6e-1", 20, 10.0), offer("v6e-4", 5, 40.0)


def growing(*offers: Offer, **changes: Any) -> Run:
    """Return a run that prefers the offers in their order."""
    base = sample_run(checkpoint_uri=Text.of("gs://b/c"), grow=True, budgets=Budgets(preemptions=5), timer=None)
    variants = tuple(
        Variant(
            candidates=(candidate(1, accelerator=one.machine.name, price_per_hour=one.price_per_hour[1]),),
            setup=None, mounts=(), job=base.job, accelerator=one.machine.name, num_slices=1, env=(), timer=None,
            offer=one,
        )
        for one in offers
    )  # fmt: skip
    places = tuple(place for one in variants for place in one.candidates)
    return replace(base, candidates=places, variants=variants, **changes)


def on(run: Run, machine: str, **changes: Any) -> Observed:
    (place,) = [one for one in run.possible if one.accelerator == machine]
    has = Intent(
        generation=1, name="demo-1", candidate=place, state=IntentState.ACCEPTED, since=BEGAN, billed_from=BEGAN
    )
    return replace(Observed(now=NOW, intents=(has,), started=True), **changes)


def explain(run: Run, seen: Observed, *, chance: float = 0.9, step: int | None = 1000) -> str:
    return explain_growth(run, seen, dict.fromkeys(run.possible, chance), launched=BEGAN, step=step)


RANGE = growing(LARGE, SMALL)


def test_a_range_grows_to_its_larger_sizes_alone() -> None:
    said = explain(RANGE, on(RANGE, "v6e-1"))
    assert said.startswith("v6e-4, spot: about 4 h ") and said.endswith("; machines within an hour: 90 %")
    assert explain(RANGE, on(RANGE, "v6e-4")) == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"chance": LIKELY - 0.01}, "the records give it too small a chance"),
        ({"step": None}, "what would be lost is not known"),
        ({"step": 9_950}, "the rest is not worth a restart"),
    ],
)
def test_a_run_stays(changes: dict[str, Any], why: str) -> None:
    assert explain(RANGE, on(RANGE, "v6e-1"), **changes) == "", why


def test_a_run_does_not_move_soon_after_a_start_or_another_move() -> None:
    seen = on(RANGE, "v6e-1")
    lost = EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="", at=NOW - SHORTEST_ATTEMPT + 1)
    moved = EndedAttempt(attempt=1, cause=EndCause.GROWN, why="", at=NOW - PAUSE + 1)
    for ended in (lost, moved):
        assert explain(RANGE, replace(seen, attempt=2, ended=(ended,))) == ""
        assert explain(RANGE, replace(seen, attempt=2, ended=(ended,), now=NOW + 1)) != ""


def test_a_move_that_may_exceed_the_limit_is_not_made() -> None:
    spent = 2 * 10.0
    for dollars, moves in ((spent + 0.9 * LARGE.dollars.high - 60, False), (spent + LARGE.dollars.high, True)):
        run = replace(RANGE, limits=Limits(dollars=dollars))
        assert bool(explain(run, on(run, "v6e-1"))) is moves
    unknown = replace(RANGE, limits=Limits(dollars=1e6))
    assert explain(unknown, on(unknown, "v6e-1", spent_before=None)) == "", "what is spent is not known"


def test_machines_that_orch_chose_are_left_for_those_that_it_would_choose_now() -> None:
    cheap, dear = offer("v6e-1", 20, 10.0), offer("v6e-4", 5, 80.0)
    run = growing(cheap, dear, automatic=AutomaticChoice(budget=None, by=""))
    assert explain(run, on(run, "v6e-4")).startswith("v6e-1, spot: "), "half the price of the rest"
    assert explain(run, on(run, "v6e-1")) == "", "it has what it would choose"
    near = growing(cheap, offer("v6e-4", 5, 41.0), automatic=AutomaticChoice(budget=None, by=""))
    assert explain(near, on(near, "v6e-4")) == "", "a little cheaper is not worth a restart"
    late = replace(run, automatic=AutomaticChoice(budget=None, by="9h"))
    assert explain(late, on(late, "v6e-1")).startswith("v6e-4, spot: "), "only they keep the date"


@pytest.mark.parametrize(
    "changes", [{"grow": False}, {"create": False}, {"checkpoint_uri": None}, {"budgets": Budgets()}]
)
def test_a_run_that_may_not_move_stays(changes: dict[str, Any]) -> None:
    run = replace(RANGE, **changes)
    assert explain(run, on(run, "v6e-1")) == ""


def nodes(*counts: int, price: float | None = 10.0, **changes: Any) -> Run:
    """Return an own program with a range of nodes, whose work is not known."""
    base = sample_run(checkpoint_uri=Text.of("gs://b/c"), grow=True, budgets=Budgets(preemptions=5), timer=None)
    variants = tuple(
        Variant(
            candidates=(candidate(count, accelerator="A", price_per_hour=price and count * price),),
            setup=None, mounts=(), job=base.job, accelerator="A", num_slices=1, env=(), timer=None, nodes=count,
        )
        for count in counts
    )  # fmt: skip
    places = tuple(place for one in variants for place in one.candidates)
    return replace(base, candidates=places, variants=variants, **changes)


def on_nodes(run: Run, count: int, hours: float = 8.0, step: int = 1000) -> Observed:
    """Return what is seen of a run that has had so many nodes for some hours."""
    (place,) = [one for one in run.possible if one.hosts == count]
    began = NOW - hours * HOUR
    has = Intent(
        generation=1, name="demo-1", candidate=place, state=IntentState.ACCEPTED, since=began, billed_from=began
    )
    hosts = (HostView(rank=0, internal_ip=Text.of("10.0.0.1"), step=step),)
    return Observed(now=NOW, intents=(has,), started=True, hosts=hosts)


OWN = nodes(8, 4, 2)


def test_an_own_program_moves_to_more_nodes_and_says_what_is_assumed() -> None:
    said = explain(OWN, on_nodes(OWN, 2))
    assert said.startswith("8 x A, spot: about ") and " on 2 x A (assumed: as much is left as is done); " in said
    assert explain(OWN, on_nodes(OWN, 8)) == "", "there are no more"
    assert explain(OWN, on_nodes(OWN, 2), chance=LIKELY - 0.01) == ""


@pytest.mark.parametrize(
    ("run", "seen", "why"),
    [
        (OWN, {"hours": 1.0}, "as little is assumed to be left, and a restart costs more"),
        (nodes(9, 8), {"count": 8}, "one node more saves a tenth at most"),
        (nodes(8, 2, price=None), {}, "prices are not known"),
        (nodes(8, 2, limits=Limits(hours=8.5)), {}, "its limit of hours leaves half an hour"),
        (nodes(8, 2, limits=Limits(dollars=200)), {}, "it may cost more than its limit"),
        (nodes(2, 4), {}, "fewer nodes are preferred"),
    ],
)
def test_an_own_program_stays(run: Run, seen: dict[str, Any], why: str) -> None:
    assert explain(run, on_nodes(run, **{"count": 2} | seen)) == "", why


def test_an_own_program_does_not_move_to_other_machines_on_which_its_speed_is_not_known() -> None:
    other = nodes(8, 2)
    first = replace(other.variants[0], accelerator="B")
    run = replace(other, variants=(first, other.variants[1]))
    assert explain(other, on_nodes(other, 2)) != "" and explain(run, on_nodes(run, 2)) == ""


def test_two_nodes_become_four_after_an_hour_and_a_half() -> None:
    run = nodes(4, 2)
    assert [bool(explain(run, on_nodes(run, 2, hours=hours))) for hours in (1.5, 1.7)] == [False, True]


def test_work_on_earlier_nodes_of_the_job_counts_by_their_number() -> None:
    """0.4 hours of four nodes are 0.8 of two: with 0.9 more the program moves, as after 1.7 hours."""
    run = nodes(4, 2)
    seen = on_nodes(run, 2, hours=0.9)
    (has,) = seen.intents
    before = replace(
        has,
        candidate=run.variants[0].candidates[0],
        state=IntentState.DELETED,
        billed_from=NOW - 2 * HOUR,
        billed_until=NOW - 1.6 * HOUR,
    )
    seen = replace(seen, intents=(before, replace(has, generation=2)))
    assert explain(run, seen) != "" and explain(run, replace(seen, generation_at_open=1)) == ""


def test_staying_costs_the_rest_of_the_work_and_no_restart() -> None:
    """About 18 hours are left at $10, or 8 at $20; a restart would cost $1.33 or $2.67 more."""
    small, large = (replace(one, market=OnDemand()) for one in (SMALL, LARGE))
    offered = measure_offer_move(on(RANGE, "v6e-1"), small, large, step=1000, share=1.0)
    assert offered is not None and 179 < offered.stay_dollars < 180
    run = nodes(4, 2)
    better, present = run.variants
    seen = on_nodes(run, 2)
    (has,) = seen.intents
    seen = replace(seen, intents=(replace(has, candidate=replace(has.candidate, market=OnDemand())),))
    own = measure_program_move(run, seen, present, better, better.candidates[0], step=1000)
    assert own is not None and 160 < own.stay_dollars < 161


@pytest.mark.parametrize(("preferred", "has"), [(10, 10), (9, 10), (2, 4)])
def test_an_own_program_does_not_move_to_as_many_or_fewer_nodes_on_demand(preferred: int, has: int) -> None:
    """Of ten spot nodes one is lost in two hours: no larger group has an end that can be estimated."""
    run = nodes(preferred, has)
    safe, spot = run.variants
    (place,) = safe.candidates
    safe = replace(safe, candidates=(replace(place, market=OnDemand(), zone="other"),))
    run = replace(run, variants=(safe, spot), candidates=(*safe.candidates, *spot.candidates))
    seen = on_nodes(replace(run, candidates=spot.candidates, variants=(spot,)), has, hours=200.0)
    assert run.find_variant(seen.intents[0].candidate) is spot
    assert measure_program_move(run, seen, spot, safe, safe.candidates[0], step=1000) is not None
    assert explain(run, seen) == ""


def test_an_own_program_without_a_known_checkpoint_stays() -> None:
    assert explain(OWN, on_nodes(OWN, 2), step=None) == ""


def test_what_an_own_program_would_lose_counts() -> None:
    """7 of 8 hours are done again on machines that are about 2.5 times as fast."""
    grows = nodes(4, 2)
    assert explain(grows, on_nodes(grows, 2, step=1000), step=1000) != ""
    assert explain(grows, on_nodes(grows, 2, step=1000), step=125) == ""


def test_an_own_program_whose_machines_orch_chose_counts_its_work_by_time() -> None:
    cheap, dear = (replace(one, steps=1, step_seconds=Estimate.between(0.9 * x, 1.1 * x)) for one, x in (
        (offer("v6e-1", 20, 10.0), 20 * HOUR), (offer("v6e-4", 5, 80.0), 5 * HOUR)))  # fmt: skip
    run = growing(cheap, dear, automatic=AutomaticChoice(budget=None, by=""))
    assert explain(run, on(run, "v6e-4")).startswith("v6e-1, spot: "), "half the price of the rest"
    assert explain(run, on(run, "v6e-1")) == "", "it has what it would choose"
    assert explain(run, on(run, "v6e-4"), step=None) == "", "no checkpoint is known"
