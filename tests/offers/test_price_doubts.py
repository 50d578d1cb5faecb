"""Prices unlike their neighbours are named with their source, and waits of our records are in the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import Price
from orchestrator.catalog.refreshed import PriceRow, Refreshed, write_refreshed
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import OwnProgram
from orchestrator.offers.capacity import FEWEST, CapacityFigures, CapacityKey, CapacityRequest, summarize_capacity
from orchestrator.offers.offer_table import describe_prices
from orchestrator.offers.offers import Offer, OfferRequest
from orchestrator.offers.price_doubts import find_price_doubts

WORK = OwnProgram(flops=1e19, memory_gib=16)
MACHINES = tuple(resolve(name) for name in ("v6e-1", "v6e-8", "v6e-16"))
DAY = 86_400.0


def price(dollars: float) -> Price:
    return Price(low=dollars, high=dollars, note="list price", as_of="2026-11-26", source="somewhere")


def test_a_price_of_eight_chips_read_as_that_of_one_is_named() -> None:
    right = {(one.name, "on-demand"): price(2.7 * one.chips) for one in MACHINES}
    assert find_price_doubts(MACHINES, right) == {}
    for factor in (1 / 8, 8):
        wrong = right | {("v6e-8", "on-demand"): price(2.7 * 8 * factor)}
        (key,) = found = find_price_doubts(MACHINES, wrong)
        assert key == ("v6e-8", "on-demand")
        assert f"${2.7 * factor:,.2f} a chip and hour" in found[key] and "$2.70 (somewhere)" in found[key]
    two = {key: value for key, value in right.items() if key[0] != "v6e-16"} | {("v6e-1", "on-demand"): price(30)}
    assert find_price_doubts(MACHINES, two) == {}, "of two, which one is wrong is not known"


@pytest.mark.parametrize(("spot", "doubted"), [(0.001, True), (0.8, False), (2.6, False), (3.0, True)])
def test_a_spot_price_is_compared_with_the_list_price(spot: float, doubted: bool) -> None:
    prices = {("v6e-1", "on-demand"): price(2.7), ("v6e-1", "spot"): price(spot)}
    assert (("v6e-1", "spot") in find_price_doubts(MACHINES, prices)) is doubted


def test_the_tables_have_no_doubtful_price_and_a_refreshed_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    assert [one.name for one in list_offers(WORK, OfferRequest(most_hosts=64)) if one.price_doubt] == []
    row = PriceRow(
        name="p5.48xlarge", market="spot", region="us-east-1", low=1.9, typical=1.9, high=1.9, source="history",
        as_of="2026-11-26",
    )  # fmt: skip
    write_refreshed(Refreshed(provider="aws", read_at=1.79e9, rows=(row,)))
    found = [one for one in list_offers(WORK, OfferRequest()) if one.price_doubt]
    assert {(one.machine.name, str(one.market)) for one in found} == {("p5.48xlarge", "spot")}
    notes = list(describe_prices(found[:1]))
    assert notes[1].startswith("check the price of 1: $0.24 a chip and hour") and notes[1].endswith("(history)")


def figures(*waits: float) -> dict[CapacityKey, CapacityFigures]:
    key = CapacityKey(provider="gcp", place="us-central1-a", accelerator="v6e-8", hosts=1, market="spot")
    return summarize_capacity([CapacityRequest(key=key, at=DAY, wait=wait, got=True) for wait in waits], 2 * DAY)


def find(capacity: dict[CapacityKey, CapacityFigures]) -> Offer:
    (found,) = list_offers(WORK, OfferRequest(only=("v6e-8", "spot")), capacity)
    return found


def test_own_waits_are_in_the_time_and_cost_nothing() -> None:
    none, few = find({}), find(figures(*[4 * 3600.0] * (FEWEST - 1)))
    assert few.seconds == none.seconds, "below five requests nothing is known"
    long = find(figures(*[4 * 3600.0] * FEWEST))
    assert long.seconds.low > none.seconds.low + 3 * 3600
    assert long.dollars == none.dollars, "machines that are not there are not paid"
    short = find(figures(*[30.0] * FEWEST))
    assert short.seconds == none.seconds, "set-up takes as long as assumed, at least"
    assert "by our records" in next(describe_prices([long]))
    assert "in the time of 2 alone" in next(describe_prices([none, long]))
    assert "is not in the time" in next(describe_prices([none, replace(few, nodes=1)]))
