"""What is recorded of an estimate when a run is launched, and how it is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.offers.predictions import compare_estimate, make_estimate
from orchestrator.slices import Candidate, OnDemand, Spot

ADVICE: dict[str, Any] = {
    "hardware": {"name": "2 x p5.48xlarge", "devices": 16, "slices": 2},
    "timing": {"tokens": 1_000_000, "seconds": [2.0, 8.0], "source": "someone"},
    "run_tokens": 1_000_000_000,
}  # fmt: skip
CANDIDATE = Candidate(
    provider="aws", accelerator="p5.48xlarge", hosts=2, chips_per_host=8, market=OnDemand(), price_per_hour=110.08
)


def test_speed_time_and_cost_of_each_kind_of_machine_are_recorded() -> None:
    made = make_estimate([ADVICE], [CANDIDATE])["machines"]["p5.48xlarge"]
    assert made["tokens_per_s"] == {"low": 125_000, "typical": 250_000, "high": 500_000}
    assert made["seconds"]["low"] > 2000 and made["seconds"]["high"] > 8000, "with set-up, saves and losses"
    assert made["dollars"]["high"] == pytest.approx(made["seconds"]["high"] * 110.08 / 3600)
    spot = make_estimate([ADVICE], [replace(CANDIDATE, market=Spot())])["machines"]["p5.48xlarge"]
    assert spot["seconds"]["high"] > made["seconds"]["high"]


@pytest.mark.parametrize(
    "advice", [[], [ADVICE | {"timing": {"seconds": None}}], [ADVICE | {"hardware": {"name": "v5e-8", "devices": 8}}]]
)
def test_without_a_speed_nothing_is_recorded(advice: list[dict[str, Any]]) -> None:
    assert make_estimate(advice, [CANDIDATE]) == {}


def test_an_unknown_price_is_no_cost() -> None:
    made = make_estimate([ADVICE], [replace(CANDIDATE, price_per_hour=None)])["machines"]["p5.48xlarge"]
    assert "dollars" not in made and "seconds" in made


def test_only_what_was_estimated_and_is_measured_is_compared() -> None:
    made = make_estimate([ADVICE], [CANDIDATE])
    measured = {"tokens_per_s": 600_000.0, "seconds": 3000.0, "dollars": None}
    found = {one.quantity: one.is_inside for one in compare_estimate(made, "p5.48xlarge", measured)}
    assert found == {"tokens_per_s": False, "seconds": True}
    assert compare_estimate(made, "v5e-8", measured) == ()
    for odd in ({}, {"machines": []}, {"machines": {"p5.48xlarge": {"seconds": 3, "dollars": {"low": "x"}}}}):
        assert compare_estimate(odd, "p5.48xlarge", measured | {"dollars": 1.0}) == ()
