"""How much work `orch offers` does over the whole catalogue: modules, rows and memory estimates, counted, not timed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog import ec2
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import list_prices, price_per_hour
from orchestrator.catalog.refreshed import PriceRow, Refreshed, write_refreshed
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import OwnProgram
from orchestrator.offers.offers import OfferRequest
from orchestrator.slices import Spot
from trainer.options import parse_config
from trainer.shape import search
from trainer.shape.hardware import Hardware

HEAVY = {"pydantic", "sqlalchemy", "yaml", "boto3", "googleapiclient", "paramiko", "jinja2"}
DEVICE = Hardware(
    name="one", kind="cuda", chip="H100", devices=8, hosts=1, slices=1, memory_bytes=80 << 30, peak_flops=989e12
)


def test_no_heavy_module_is_loaded() -> None:
    program = """
import orchestrator.cli.commands.before.offers, sys
from orchestrator.engine.training.offers import OfferRequest, OwnProgram, list_offers
assert list_offers(OwnProgram(flops=1e20, memory_gib=16), OfferRequest())
print(*sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in shown.stdout.split()}
    assert not loaded & HEAVY
    assert len(shown.stdout.split()) < 300, "a new import: each costs about a millisecond"


def test_equal_machines_are_searched_once() -> None:
    config = parse_config(["model=1b", "batch=512", "seq_len=2048"])
    first = search.find_fastest(config, DEVICE)
    before = [one.cache_info().misses for one in (search.list_ways, search.fit_memory, search.count_bytes)]
    elsewhere = replace(DEVICE, name="the same in another region", network=50e9)
    again = search.find_fastest(config, elsewhere)
    assert [one.cache_info().misses for one in (search.list_ways, search.fit_memory, search.count_bytes)] == before
    assert first is not None and again is not None and first.settings == again.settings


def test_the_rows_of_prices_are_read_once_for_each_machine_and_market() -> None:
    work = OwnProgram(flops=1e20, memory_gib=16)
    list_offers(work, OfferRequest())
    before = ec2.list_price_rows.cache_info().misses
    assert before <= 3 * len(ec2.list_machines()), "a machine and a market, on demand, spot or flex-start"
    list_offers(work, OfferRequest(most_hosts=64))
    assert ec2.list_price_rows.cache_info().misses == before


def test_prices_of_many_places_are_those_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that the vendor gave, by zone, of which one region is passed over."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    machine = resolve("p5.48xlarge")
    zones = {"us-east-1": ("a", "b"), "us-west-2": ("a",), "eu-north-1": ("",)}
    rows = [
        PriceRow(
            name=machine.name, market="spot", region=region, zone=zone and region + zone, low=20.0, typical=21.0,
            high=22.0 if region != "eu-north-1" else 99_999.0, source="test", as_of="2026-11-26",
        )
        for region, letters in zones.items()
        for zone in letters
    ]  # fmt: skip
    write_refreshed(Refreshed(provider="aws", read_at=1e9, rows=tuple(rows)))
    places = [(region, f"{region}{zone}") for region in (*zones, "af-south-1") for zone in "abc"]
    found = list_prices(machine, Spot(), [*places, ("", "")])
    assert [one is not None and one.refreshed for one in found] == [*[True] * 6, *[False] * 6, True]
    assert found == [price_per_hour(machine, Spot(), *place) for place in [*places, ("", "")]]
