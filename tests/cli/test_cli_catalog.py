"""`orch catalog refresh` against both simulated clouds, and what accelerators, plans and offers show from then on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.cloud import NO_ACCOUNT, aws_scenario
from orch_fronts.aws.pricing import PricingFront
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.tables import list_price
from orch_fronts.google.cloud import google_scenario
from orch_fronts.google.grants import Grants
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.catalog.comparing import KNOWN_MARKETS, ORDERS
from orchestrator.catalog.ec2 import load_instances
from orchestrator.catalog.refreshed import PriceRow, Refreshed, load_refreshed, refreshed_path, write_refreshed
from orchestrator.cli.commands.before import accelerators as command
from orchestrator.cloud_access import AWS_API, GOOGLE_API
from orchestrator.providers.aws import prices as aws_prices
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario

Orch = Callable[..., Any]
P5, FEW = "p5.48xlarge", ("p5.48xlarge", "g6.xlarge", "t3.medium")
TODAY = datetime.now(UTC).date().isoformat()


@pytest.fixture
def clean(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    for name, value in {**NO_ACCOUNT, "NO_GCE_CHECK": "true"}.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture
def aws(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[AwsServer]:
    monkeypatch.setattr(aws_prices, "list_machines", lambda: [load_instances()[name] for name in FEW])
    access = InMemory(replace(aws_scenario(Scenario()), page=500), ManualClock(time.time()))
    with AwsServer(access, fronts={"pricing": PricingFront(access)}) as server:
        monkeypatch.setenv(AWS_API, server.url)
        yield server


@pytest.fixture
def google(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[TpuServer]:
    access = InMemory(replace(google_scenario(Scenario()), page=500), ManualClock())
    with TpuServer(access) as server:
        monkeypatch.setenv(GOOGLE_API, server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield server


def valid(name: str, text: str) -> dict[str, Any]:
    """Parse a document and check it against its schema."""
    document: dict[str, Any] = json.loads(text)
    schema = files("orchestrator.cli").joinpath("data", f"{name}.schema.json").read_text(encoding="utf-8")
    validator: Any = jsonschema.Draft202012Validator(json.loads(schema))
    validator.validate(document)
    return document


def _accelerators(orch: Orch, *words: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(orch("accelerators", *words, "-o", "json").out)["accelerators"]}


def test_both_clouds_are_read_and_used_everywhere(
    orch: Orch, aws: AwsServer, google: TpuServer, tmp_path: Path
) -> None:
    before = _accelerators(orch, P5, "--region", "eu-north-1")[P5]["prices"]["on-demand"]
    assert not before["refreshed"] and before["low"] != float(list_price(P5, "eu-north-1"))
    done = orch("catalog", "refresh", "-o", "json")
    assert done.status == 0, done.err
    clouds = {one["provider"]: one for one in valid("catalog", done.out)["clouds"]}
    assert all(one["used"] == "refreshed" and one["not_read"] == [] for one in clouds.values())
    assert set(clouds["aws"]["markets"]) == {"on-demand", "spot", "block"} and "eu-north-1" in clouds["aws"]["regions"]
    assert set(clouds["gcp"]["markets"]) == {"on-demand", "spot", "flex-start"}
    assert "aws: regions: " in done.err and "gcp: pages of SKUs" not in done.err

    shown = _accelerators(orch, P5, "--region", "eu-north-1")[P5]["prices"]["on-demand"]
    assert (shown["low"], shown["as_of"], shown["refreshed"]) == (float(list_price(P5, "eu-north-1")), TODAY, True)
    assert shown["source"] == aws_prices.PRICE_LIST and shown["per_chip"] == shown["low"] / 8
    spot = _accelerators(orch, P5, "--region", "eu-north-1", "--market", "spot")[P5]["prices"]["spot"]
    assert spot["low"] < spot["typical"] < spot["high"] < shown["low"]
    flex = orch("accelerators", "v6e-8", "--market", "flex-start", "--region", "us-east5", "-v").out
    assert "$10.80" in flex and "Cloud Billing Catalog API" in flex and TODAY in flex

    task = tmp_path / "task.yaml"
    task.write_text("name: x\nresources: {accelerators: H100:8, infra: aws/eu-north-1}\nrun: echo\n")
    plan = orch("plan", str(task), "-o", "json")
    (candidate, *_) = json.loads(plan.out)["wanted"]["candidates"]
    assert candidate["price_per_hour"] == float(list_price(P5, "eu-north-1"))
    assert candidate["price_note"] == f"list price, eu-north-1, {TODAY}"

    offers = json.loads(
        orch("offers", "--flops", "1e21", "--memory", "0", "--only", f"{P5},on-demand", "-o", "json").out
    )["offers"]
    assert offers[0]["price_per_hour"]["note"].endswith(TODAY)


def test_half_a_failure_is_kept_named_and_in_the_exit_status(
    orch: Orch, google: TpuServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert orch("catalog", "refresh", "gcp").status == 0
    known = load_refreshed("gcp").refreshed
    google.guard.grants = replace(Grants(), permissions=Grants().permissions - {"tpu.locations.list"})
    done = orch("catalog", "refresh", "gcp")
    assert done.status == 1 and "gcp: not read: TPU zones: " in done.err and "tpu.locations.list" in done.err
    found = load_refreshed("gcp").refreshed
    assert known is not None and found is not None and len(found.rows) == len(known.rows) and found.unread
    assert found.offered == known.offered, "places of before stay"
    assert "TPU zones" in orch("catalog", "show", "-o", "json").out


def test_nothing_read_leaves_the_file_as_it_was(orch: Orch, google: TpuServer) -> None:
    assert orch("catalog", "refresh", "gcp").status == 0
    before = refreshed_path("gcp").read_bytes()
    google.guard.grants = replace(Grants(), apis=frozenset())
    done = orch("catalog", "refresh", "gcp")
    assert done.status == 1 and "Google gave no prices" in done.err and len(done.err.splitlines()) <= 5
    assert refreshed_path("gcp").read_bytes() == before


def test_one_region_is_read_again_and_the_others_stay(orch: Orch, aws: AwsServer) -> None:
    write_refreshed(_refreshed(_row(region="us-east-1"), _row(region="eu-west-3")))
    assert orch("catalog", "refresh", "aws", "--region", "us-east-1").status == 0
    found = load_refreshed("aws").refreshed
    assert found is not None
    prices = {(one.region, one.as_of): one.low for one in found.rows if (one.name, one.market) == (P5, "on-demand")}
    assert prices == {("us-east-1", TODAY): 55.04, ("eu-west-3", "2026-01-01"): 1.0}


def test_a_region_that_is_none_is_refused_with_near_names(orch: Orch, aws: AwsServer) -> None:
    done = orch("catalog", "refresh", "aws", "--region", "us-eats-1")
    assert done.status == 2 and "no such region is known: `us-eats-1`" in done.err and "us-east-1" in done.err


def test_one_cloud_that_refuses_does_not_hide_the_other(
    orch: Orch, aws: AwsServer, google: TpuServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(call: AwsCall) -> AwsAnswer:
        raise AwsRefusal("UnauthorizedOperation", "You are not authorized to perform this operation", 403)

    monkeypatch.setattr(aws, "answer", refuse)
    done = orch("catalog", "refresh", "-o", "json")
    assert done.status == 1 and "aws: AWS gave no prices" in done.err
    clouds = {one["provider"]: one["used"] for one in json.loads(done.out)["clouds"]}
    assert clouds == {"aws": "shipped", "gcp": "refreshed"}


def test_without_a_cloud_the_next_step_is_said(orch: Orch, clean: Path) -> None:
    done = orch("catalog", "refresh")
    assert done.status == 2 and "no cloud is set up" in done.err
    assert orch("catalog", "refresh", "azure").status == 2
    assert orch("catalog", "refresh", "aws", "--days", "91").status == 2


def test_what_is_used_is_shown_without_a_cloud(orch: Orch, clean: Path) -> None:
    alone, shown = orch("catalog"), orch("catalog", "show")
    assert alone.out == shown.out and "orch's own tables" in shown.out and "orch catalog refresh" in shown.err
    write_refreshed(_refreshed(_row()))
    old = orch("catalog", "show")
    assert "the oldest prices of aws were read" in old.err and str(refreshed_path("aws")) in " ".join(old.out.split())
    refreshed_path("aws").write_text("{")
    broken = orch("catalog", "show", "-o", "json")
    (document, _) = sorted(valid("catalog", broken.out)["clouds"], key=lambda one: one["provider"])
    assert document["used"] == "shipped" and "not JSON" in document["problem"]
    assert orch("catalog", "-o", "json").out == broken.out


@pytest.mark.parametrize("words", [("accelerators", "H100"), ("offers", "--model", "1b", "--only", P5)])
def test_old_and_broken_prices_are_said_once(orch: Orch, clean: Path, words: tuple[str, ...]) -> None:
    write_refreshed(_refreshed(_row()))
    assert orch(*words).err.count("the oldest prices of aws were read") == 1
    refreshed_path("aws").write_text("{")
    assert orch(*words).err.count("is not used: it is not JSON") == 1


def test_a_chip_finds_its_shapes_and_prices_are_compared(orch: Orch, clean: Path) -> None:
    assert list(_accelerators(orch, "h100")) == ["p5.4xlarge", P5]
    assert list(_accelerators(orch, "H100:8")) == [P5]
    assert len(_accelerators(orch, "L4:1")) > 5
    by_pflop = list(_accelerators(orch, "--sort", "pflop", "--market", "spot").values())
    values = [one["prices"]["spot"]["per_pflop"] for one in by_pflop if one["prices"]["spot"]]
    known = [value for value in values if value is not None]
    assert known == sorted(known) and by_pflop[-1]["prices"]["spot"] is None
    p5 = _accelerators(orch, "H100:8")[P5]
    assert p5["prices"]["on-demand"]["per_pflop"] == pytest.approx(55.04 / 8 / 0.989)
    assert p5["on_demand_per_hour"] == p5["prices"]["on-demand"] and p5["shape"] == "H100:8"
    memory = list(_accelerators(orch, "--only", "aws,H100,B200", "--sort", "memory"))
    assert memory[0] == "p6-b200.48xlarge" and set(memory) == {"p5.4xlarge", P5, "p6-b200.48xlarge"}
    for market in KNOWN_MARKETS:
        assert valid("accelerators", orch("accelerators", "T4", "--market", market, "-o", "json").out)
    assert "your contract" in orch("accelerators", "H100", "--market", "reservation").err


def test_unknown_words_of_accelerators_are_named(orch: Orch, clean: Path) -> None:
    region = orch("accelerators", "--region", "us-eats-1")
    assert region.status == 2 and "no such region is known" in region.err and "us-east-1" in region.err
    nowhere = orch("accelerators", "--region", "nowhere")
    assert nowhere.status == 2 and "next: name one of these, or leave --region out" in nowhere.err
    sold = orch("accelerators", "v6e-8", "--region", "us-west-1")
    assert sold.status == 2 and "none of these machines is known to be sold" in sold.err
    assert "us-central1" in orch("accelerators", "v6e-8", "--region", "us-central").err
    block = orch("accelerators", "v6e-8", "--market", "block").err
    assert "none of these machines is sold in Capacity Blocks: " in block and "blocks find" not in block
    only = orch("accelerators", "--only", "azure")
    assert only.status == 2 and "`azure` is not a cloud" in only.err
    for more in ((), ("-o", "json")):
        none = orch("accelerators", "--only", "aws,v6e", *more)
        assert none.status == 2 and "NAME" not in none.out and "no machine fits these words" in none.err


def test_the_choices_of_the_command_are_those_of_the_catalogue() -> None:
    assert (KNOWN_MARKETS, tuple(ORDERS)) == (command.MARKETS, command.ORDERS)


def _row(region: str = "us-east-1") -> PriceRow:
    return PriceRow(
        name=P5, market="on-demand", region=region, low=1.0, typical=1.0, high=1.0, source="s", as_of="2026-01-01"
    )


def _refreshed(*rows: PriceRow) -> Refreshed:
    return Refreshed(provider="aws", read_at=time.time(), rows=rows)
