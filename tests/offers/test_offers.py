"""Offers: time with losses, the choice among them, and the command."""

from __future__ import annotations

import json
import math
import shlex
from importlib.resources import files
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.catalog.accelerators import resolve
from orchestrator.cli.app import app
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import Training
from orchestrator.errors import UserError
from orchestrator.offers.estimates import (
    SAVE_STALL,
    Estimate,
    Risk,
    assess_risk,
    choose_save_interval,
    estimate_duration,
)
from orchestrator.offers.offers import MOST_SHOWN, SURE, Offer, OfferRequest, choose_offers
from orchestrator.slices import OnDemand, Spot

positive = st.floats(1.0, 1e7)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    low, high = sorted((draw(positive), draw(positive)))
    return Estimate.between(low, high)


@st.composite
def made_offers(draw: st.DrawFn) -> Offer:
    return Offer(
        machine=resolve("v6e-8"), nodes=draw(st.integers(1, 4)), market=OnDemand(), price_per_hour=(1.0, 1.0),
        price_note="", settings=(), steps=1, step_seconds=Estimate.between(1, 2), seconds=draw(estimates()),
        dollars=draw(estimates()), save_interval=600.0, speed_source="",
    )  # fmt: skip


@given(st.lists(made_offers(), max_size=40), st.none() | positive, st.none() | positive)
def test_no_offer_that_is_shown_is_beaten(found: list[Offer], seconds: float | None, budget: float | None) -> None:
    request = OfferRequest(seconds=seconds, budget=budget)
    shown = choose_offers(found, request)
    assert len(shown) <= MOST_SHOWN
    for one in shown:
        assert budget is None or one.dollars.high <= budget
        for other in shown:
            worse = other.dollars.typical >= one.dollars.typical and other.seconds.typical >= one.seconds.typical
            assert other is one or not worse
    if seconds is not None and any(one.chance_in_time(request) < SURE for one in shown):  # type: ignore[operator]  # there is a deadline
        assert all(
            one.seconds.chance_below(seconds) < SURE for one in found if budget is None or one.dollars.high <= budget
        ), "one that meets the deadline was left out"


@given(st.lists(made_offers(), min_size=1, max_size=40), positive, st.floats(0, 1e7))
def test_more_money_never_ends_later(found: list[Offer], budget: float, more: float) -> None:
    def earliest(dollars: float) -> float:
        shown = choose_offers(found, OfferRequest(budget=dollars))
        return min((one.seconds.typical for one in shown), default=math.inf)

    assert earliest(budget + more) <= earliest(budget)


@given(estimates(), st.integers(1, 100_000), st.integers(1, 64), st.booleans())
@settings(max_examples=200)
def test_a_run_takes_longer_than_its_steps_and_spot_is_never_faster(
    step: Estimate, steps: int, nodes: int, spot: bool
) -> None:
    kept = estimate_duration(step, steps, assess_risk(8 * nodes, nodes, OnDemand()))
    taken = estimate_duration(step, steps, assess_risk(8 * nodes, nodes, Spot() if spot else OnDemand()))
    assert kept is not None
    assert kept.low > steps * step.low and kept.typical > steps * step.typical and kept.high > steps * step.high
    assert taken is None or (taken.low >= kept.low and taken.typical >= kept.typical)


def test_the_save_interval_is_the_best_one() -> None:
    losses = 0.5  # an hour
    best = choose_save_interval(losses)

    def waste(interval: float) -> float:
        return SAVE_STALL / interval + losses / 3600 * interval / 2

    assert all(waste(best) <= waste(best * factor) for factor in (0.5, 0.9, 1.1, 2.0))
    assert choose_save_interval(0) == 3600


def test_losses_faster_than_progress_never_end() -> None:
    often = Risk(per_hour=Estimate.between(10, 20), restart=Estimate.between(600, 700))
    assert estimate_duration(Estimate.between(1, 2), 1000, often) is None


def test_chances_are_those_of_the_percentiles() -> None:
    found = Estimate.between(100, 400)
    assert found.chance_below(100) == pytest.approx(0.1)
    assert found.chance_below(200) == pytest.approx(0.5)
    assert found.chance_below(400) == pytest.approx(0.9)
    assert found.chance_below(0) == 0


def offers(*words: str) -> Any:
    done = CliRunner().invoke(app, ["offers", *words, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    schema = json.loads(files("orchestrator.cli").joinpath("data", "offers.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    return document["offers"]


def test_the_commands_are_those_of_orch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_AWS_INSTANCE_PROFILE", "runs")
    found = offers("--model", "1b", "--tokens", "20B", "--budget", "2000")
    assert 1 <= len(found) <= MOST_SHOWN
    assert [one["dollars"]["typical"] for one in found] == sorted(one["dollars"]["typical"] for one in found)
    for one in (found[0], found[-1]):
        words = shlex.split(one["command"].replace("NAME", "orch-test-runs"))
        assert words[0] == "orch"
        planned = CliRunner().invoke(app, [*words[1:], "--dry-run", "-o", "json"], catch_exceptions=False)
        assert planned.exit_code == 0, planned.output
        plan = json.loads(planned.stdout)
        assert not any(concern["fatal"] for advice in plan["advice"] for concern in advice["concerns"]), one["command"]


def test_the_size_of_the_data_is_that_of_the_plan_and_the_default_text_is_named() -> None:
    words = ("offers", "--model", "1b", "--tokens", "20B", "--only", "v6e,spot")
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "data: about 19 GiB of tokens" in shown.stderr
    assert "default text, in bytes, until data= is given" in shown.stderr
    given = CliRunner().invoke(app, [*words, "data=gs://mine/books"], catch_exceptions=False)
    assert "data: about 37 GiB of tokens" in given.stderr and "until data= is given" not in given.stderr
    for line, size in (("", "18.6 GiB"), ("data=gs://mine/books", "37.3 GiB")):
        plan = ["train", "v6e-8", "--bucket", "gs://mine/runs", "model=1b", "seq_len=2048", "batch=512", "steps=19074"]
        planned = CliRunner().invoke(app, [*plan, *line.split(), "--dry-run", "-o", "json"], catch_exceptions=False)
        (stored,) = (one for one in json.loads(planned.stdout)["advice"][0]["text"] if one.startswith("stored"))
        assert f"the tokens of the run are about {size}" in stored


def test_a_setting_cannot_become_a_command_of_a_shell() -> None:
    (command, *_) = (one["command"] for one in offers("--model", "1b", "data=/a; touch b"))
    assert "data=/a; touch b" in shlex.split(command)


def test_tokens_are_a_setting_as_for_train_auto() -> None:
    assert offers("--model", "1b", "tokens=2B", "--only", "v6e,spot") == offers(
        "--model", "1b", "--tokens", "2B", "--only", "v6e,spot"
    )


def test_only_keeps_what_fits_each_kind_of_word() -> None:
    for words, kept in (
        ("gcp,spot", lambda one: one["provider"] == "gcp" and one["market"] == "spot"),
        ("v6e,on-demand", lambda one: one["chip"] == "v6e" and one["market"] == "on-demand"),
        ("p5.48xlarge", lambda one: one["machine"] == "p5.48xlarge"),
        ("H100:8,spot", lambda one: one["chip"] == "H100" and one["chips"] % 8 == 0 and one["market"] == "spot"),
    ):
        found = offers("--model", "1b", "--only", words)
        assert found and all(kept(one) for one in found), words


def test_more_memory_than_one_machine_has_takes_several() -> None:
    found = list_offers(
        Training(settings=("model=70b", "batch=256", "seq_len=4096"), tokens=1e9), OfferRequest(most_hosts=8)
    )
    hbm = [one.nodes * one.machine.chips * one.machine.hbm_gib_per_chip for one in found]
    assert hbm and min(hbm) > 70e9 * 12 / 2**30, "weights and moments in fp32 alone"


def test_what_cannot_be_answered_says_why() -> None:
    def refused(*words: str) -> str:
        with pytest.raises(UserError) as found:
            CliRunner().invoke(app, ["offers", *words], catch_exceptions=False)
        assert found.value.next_step
        return f"{found.value} {found.value.next_step}"

    assert "the cheapest is" in refused("--model", "1b", "--budget", "0.5")
    assert "--tokens" in refused("--model", "custom")
    assert "given twice" in refused("--model", "1b", "--tokens", "2B", "tokens=2B")
    assert "--model 1b" in refused()
    assert "clouds are aws, gcp" in refused("--model", "1b", "--only", "spot,azure")
    assert "not a whole number" in refused("--model", "1b", "seq_len=x")
    assert "is over" in refused("--model", "1b", "--by", "2020-01-01")
    assert "needs --memory" in refused("--flops", "1e21")
    assert "--capacity does not take --model" in refused("--capacity", "--model", "1b")
    assert "--accuracy does not take --capacity" in refused("--capacity", "--accuracy")
    assert "--capacity does not take KEY=VALUE" in refused("--capacity", "-o", "json", "model.dim=8")
    assert "nothing runs this in 60 s" in refused("--model", "1b", "--by", "1m")
    for place in ("mars", "us", "us-west4", "us-west-2", "nam4", "us-gov-west-1"):
        wrong = "`--bucket-in" in refused("--model", "1b", "--bucket-in", place, "--budget", "0.5")
        assert wrong is (place == "mars"), place
    assert "did you mean gcp" in refused("--model", "1b", "--only", "gpc")
    assert "no machine" in refused("--model", "70b", "--max-hosts", "1", "--only", "v5e")
    assert "is not a location" in refused("--model", "1b", "--tokens", "1B", "--bucket-in", "us east")


@pytest.mark.parametrize("words", [["--by", "1h"], ["--by", "30min"], ["--by", "6d"], []])
def test_the_next_step_of_what_is_too_dear_or_late_works(words: list[str]) -> None:
    command = ["offers", "--model", "1b", "--only", "v6e,v5e,spot", "--budget", "50"]
    with pytest.raises(UserError) as found:
        CliRunner().invoke(app, [*command, *words], catch_exceptions=False)
    assert not words or found.value.what.startswith("nothing runs this for $50.00 in ")
    step = found.value.next_step.split()
    done = CliRunner().invoke(app, [*command, *words, *step, "-o", "json"], catch_exceptions=False)
    shown = json.loads(done.stdout)["offers"]
    assert shown and all(one["chance_in_time"] is None or one["chance_in_time"] >= SURE for one in shown)


def test_the_proposed_deadline_is_the_nearest_that_works() -> None:
    command = ["offers", "--model", "1b", "--only", "v6e,spot"]
    with pytest.raises(UserError) as found:
        CliRunner().invoke(app, [*command, "--by", "1m"], catch_exceptions=False)
    option, by = found.value.next_step.split()
    assert option == "--by" and by.endswith("m")
    assert offers(*command[1:], "--by", by)
    with pytest.raises(UserError, match="nothing runs this"):
        CliRunner().invoke(app, [*command, "--by", f"{int(by[:-1]) - 10}m"], catch_exceptions=False)


@pytest.mark.parametrize("columns", ["60", "200"])
def test_the_kind_of_a_speeds_source_is_named_at_every_width(columns: str) -> None:
    words = ("offers", "--model", "1b", "--tokens", "20B", "--by", "5d", "--only", "v6e,spot")
    shown = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": columns})
    assert ("SPEED FROM" in shown.stdout) is (columns == "200")
    (line,) = (line for line in shown.stderr.splitlines() if line.startswith("speed of 1, 2, "))
    assert ", published: MaxText's published v6e runs" in line


@pytest.mark.parametrize(
    ("location", "only", "bucket", "foreign"),
    [("us-east-1", "gcp", "s3", True), ("us-east-1", "aws", "s3", False), ("us", "aws", "gs", True)],
)
def test_the_bucket_of_a_command_is_of_the_cloud_of_its_location(
    location: str, only: str, bucket: str, foreign: bool
) -> None:
    words = ("offers", "--model", "1b", "--tokens", "2B", "--only", only, "--bucket-in", location)
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert f"{bucket}://NAME" in shown.stdout and shown.stdout.count("://NAME") == shown.stdout.count(f"{bucket}://")
    assert ("could not open" in shown.stderr) is foreign
    assert ("give them: " in shown.stderr) is foreign
    assert "writing them" not in shown.stderr


def test_a_program_of_ones_own_is_judged_by_its_flops_and_memory() -> None:
    found = offers("--flops", "1e21", "--memory", "320")
    assert all(resolve(one["machine"]).hbm_gib_per_chip * one["chips"] >= 320 for one in found)
    assert all("assumed" in one["speed_source"] for one in found)
