"""Every market of `slices.Market` can be asked for, recorded and previewed. A new one needs a row in WRITTEN."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator
from plan_samples import FACTS, candidate, sample_run

import orchestrator.plan
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.observed import Observed
from orchestrator.plan.preview_json import render_json
from orchestrator.slices import CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.store.records import candidate_from_json, candidate_to_json
from orchestrator.task.parse import parse_task

SCHEMA = json.loads((Path(orchestrator.plan.__file__).parent / "data/plan.schema.json").read_text())
MARKETS: tuple[type[Market], ...] = get_args(Market)
TPU, BLOCK = "accelerators: v5e-8, infra: gcp/us-west4/us-west4-a", "{provisioning: capacity-block, reservation: cr-1}"
WRITTEN: dict[type[Market], tuple[Market, str]] = {  # what a user writes for it
    OnDemand: (OnDemand(), f"resources: {{{TPU}}}"),
    Spot: (Spot(), f"resources: {{{TPU}, use_spot: true}}"),
    Reservation: (Reservation("mine"), f"resources: {{{TPU}, accelerator_args: {{reservation: mine}}}}"),
    FlexStart: (
        FlexStart(24.0),
        f"resources: {{{TPU}, accelerator_args: {{provisioning: flex-start, max_run_hours: 24}}}}",
    ),
    CapacityBlock: (
        CapacityBlock("cr-1"),
        f"resources: {{accelerators: p5.48xlarge, infra: aws/us-east-2/us-east-2a, accelerator_args: {BLOCK}}}",
    ),
    Owned: (Owned(), "resources: {infra: hosts}\nhosts: {addresses: [a@192.0.2.1]}"),
}


@pytest.mark.parametrize("kind", MARKETS)
def test_a_task_can_ask_for_it(kind: type[Market]) -> None:
    assert kind in WRITTEN, f"add {kind.__name__} to WRITTEN, and to candidates.market_of"
    market, written = WRITTEN[kind]
    found = list_candidates(parse_task(f"run: echo\n{written}\n", file="t.yaml", env={}).only)
    assert {one.market for one in found} == {market}


@pytest.mark.parametrize("kind", MARKETS)
def test_the_store_gives_back_what_it_was_given(kind: type[Market]) -> None:
    one = candidate(market=filled(kind))
    assert candidate_from_json(candidate_to_json(one)) == one


def test_the_preview_shows_each_as_its_own_with_all_its_values() -> None:
    every = [filled(kind) for kind in MARKETS]
    run = sample_run(candidates=tuple(candidate(market=market) for market in every))
    document = json.loads(render_json(make_plan(run, Observed(now=1000.0), FACTS)))
    Draft202012Validator(SCHEMA).validate(document)
    shown = [one["market"] for one in document["wanted"]["candidates"]]
    assert len({one.pop("kind") for one in shown}) == len(MARKETS)
    assert [list(one.values()) for one in shown] == [values_of(market) for market in every]


def filled(kind: type[Market]) -> Market:
    """Return the market with some value in each of its fields."""
    values = {"str": "some-name", "float": 2.5}
    return kind(**{field.name: values[str(field.type)] for field in fields(kind)})


def values_of(market: Market) -> list[object]:
    return [getattr(market, field.name) for field in fields(market)]
