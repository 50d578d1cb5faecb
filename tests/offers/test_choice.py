"""The choice for the rest of a run: properties that hold whatever is left of work, time and money."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.catalog.accelerators import resolve
from orchestrator.offers.choice import LONGEST_WAIT, Choice, Left, Verdict, choose_for_rest, find_firm, find_reserves
from orchestrator.offers.estimates import Estimate
from orchestrator.offers.offers import SURE, Offer, OfferRequest, OfferTerms, choose_offers, make_offer
from orchestrator.plan.automatic import PATIENT, arrange_places
from orchestrator.slices import Candidate, OnDemand, Spot

HOUR = 3600.0
UNHURRIED = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
WORST = [Verdict.FITS, Verdict.LATE, Verdict.TIGHT, Verdict.SPENT]
money, times, shares = st.floats(1.0, 1e5), st.floats(HOUR, 1e6), st.floats(0.001, 1.0)


def offer(nodes: int, hours: float, spread: float, price: float, *, spot: bool = True) -> Offer | None:
    step = Estimate.between(hours * HOUR / 1000 / spread, hours * HOUR / 1000 * spread)
    terms = OfferTerms(
        machine=resolve("v6e-8"),
        nodes=nodes,
        market=Spot() if spot else OnDemand(),
        price_per_hour=(price, 1.2 * price),
        price_note="",
        settings=(),
        steps=1000,
        step_seconds=step,
        speed_source="",
    )
    return make_offer(terms)


@st.composite
def made_offers(draw: st.DrawFn) -> tuple[Offer, ...]:
    numbers = st.tuples(st.floats(0.5, 200), st.floats(1.01, 3), st.floats(1, 500))
    drawn = draw(st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=12))
    found = [offer(nodes, *each, spot=spot) for nodes, (each, spot) in enumerate(drawn, 1)]
    return tuple(one for one in found if one is not None)


def rest_of(offers: tuple[Offer, ...], share: float) -> list[Offer]:
    return [one for made in offers if (one := make_offer(made, share)) is not None]


@UNHURRIED
@given(made_offers(), shares, times | st.none(), money)
def test_a_choice_that_fits_never_exceeds_the_budget_by_its_high_estimate(
    offers: tuple[Offer, ...], share: float, seconds: float | None, dollars: float
) -> None:
    choice = choose_for_rest(offers, Left(share=share, seconds=seconds, dollars=dollars))
    if choice.verdict in (Verdict.FITS, Verdict.LATE):
        assert choice.offers
        assert all(one.dollars.high <= dollars for one in choice.offers)
    if choice.verdict is Verdict.FITS and seconds is not None:
        assert all(one.seconds.chance_below(seconds) >= SURE for one in choice.offers)
    if choice.verdict is Verdict.TIGHT:
        assert all(one.dollars.typical <= dollars for one in choice.offers)
    if choice.verdict is Verdict.SPENT:
        assert not choice.offers
        assert all(one.dollars.typical > dollars for one in rest_of(offers, share))


@UNHURRIED
@given(made_offers(), shares, times | st.none(), money, st.floats(0, 1e5))
def test_more_money_never_gives_a_worse_verdict_or_a_later_date(
    offers: tuple[Offer, ...], share: float, seconds: float | None, dollars: float, more: float
) -> None:
    def choose(budget: float) -> Choice:  # without waiting, so that nothing that is faster is put off
        return choose_for_rest(offers, Left(share=share, seconds=seconds, dollars=budget), waited=LONGEST_WAIT)

    little, much = choose(dollars), choose(dollars + more)
    assert WORST.index(much.verdict) <= WORST.index(little.verdict)
    if much.verdict is little.verdict and little.offers:
        earliest = [min(one.seconds.typical for one in choice.offers) for choice in (little, much)]
        assert earliest[1] <= earliest[0]


@UNHURRIED
@given(made_offers(), shares, times, st.floats(0, 1e6), money)
def test_a_later_deadline_is_never_dearer(
    offers: tuple[Offer, ...], share: float, seconds: float, more: float, dollars: float
) -> None:
    early = choose_for_rest(offers, Left(share=share, seconds=seconds, dollars=dollars))
    late = choose_for_rest(offers, Left(share=share, seconds=seconds + more, dollars=dollars))
    if early.verdict is Verdict.FITS:
        assert late.verdict is Verdict.FITS
        assert late.offers[0].dollars.typical <= early.offers[0].dollars.typical


def test_nothing_is_waited_for_that_is_dearer_than_machines_on_demand() -> None:
    spot, firm = offer(1, 1.0, 2.0, 20.0), offer(2, 2.0, 2.0, 5.0, spot=False)
    assert spot is not None and firm is not None
    choice = choose_for_rest((spot, firm), Left(seconds=48 * HOUR, dollars=1000.0))
    assert choice.can_wait
    assert choice.offers == (firm, spot)


@UNHURRIED
@given(made_offers(), shares, times | st.none(), money)
def test_a_beaten_offer_never_appears_among_its_kind(
    offers: tuple[Offer, ...], share: float, seconds: float | None, dollars: float
) -> None:
    """One on demand may be beaten by one that is spot, which is not always there; never by another on demand."""
    choice = choose_for_rest(offers, Left(share=share, seconds=seconds, dollars=dollars))
    for market in (Spot, OnDemand):
        kind = [one for one in choice.offers if isinstance(one.market, market)]
        for one in kind:
            for other in kind:
                beaten = other.dollars.typical <= one.dollars.typical and other.seconds.typical <= one.seconds.typical
                assert other is one or not beaten


@UNHURRIED
@given(made_offers(), times, money)
def test_reserves_are_dearer_and_faster_and_firm_ones_keep_both(
    offers: tuple[Offer, ...], seconds: float, dollars: float
) -> None:
    request = OfferRequest(seconds=seconds, budget=dollars)
    chosen = choose_offers(offers, request)
    for one in find_reserves(offers, request):
        assert one.dollars.high > dollars
        assert all(one.seconds.typical < other.seconds.typical for other in chosen)
    for one in find_firm(offers, request):
        assert one.dollars.high <= dollars and one.seconds.chance_below(seconds) >= SURE and one not in chosen


def places(price: float, *factors: float) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            provider="gcp", accelerator=f"at {price}", hosts=1, chips_per_host=8, market=Spot(), zone=f"z{number}",
            price_per_hour=price * factor,
        )
        for number, factor in enumerate(factors)
    )  # fmt: skip


def test_dear_places_are_put_off_while_there_is_time_and_not_for_ever() -> None:
    made = offer(1, 10, 1.1, 10)
    assert made is not None
    zones = places(10, 1.0, 1.2, 2.0)
    left = Left(seconds=100 * HOUR, dollars=1000)

    def tried(waited: float = 0.0, seconds: float | None = 100 * HOUR) -> tuple[Candidate, ...]:
        choice = choose_for_rest((made,), Left(seconds=seconds, dollars=1000), waited=waited)
        return arrange_places(choice, {made: zones})

    assert PATIENT > 1.2
    assert tried() == zones[:2]
    assert tried(waited=LONGEST_WAIT) == zones, "the search for machines would end"
    assert tried(seconds=15 * HOUR) == zones, "the deadline is near"
    assert tried(seconds=None) == zones, "without a deadline nothing is put off"
    choice = choose_for_rest((made,), left)
    assert arrange_places(choice, {made: zones}, lost=zones[0]) == (zones[1], zones[0])
