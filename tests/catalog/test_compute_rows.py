"""Machine types of Compute Engine: their rows against each other, and their prices against those that Google shows."""

from __future__ import annotations

import pytest

from orch_fronts.google.compute import types
from orchestrator.catalog import compute
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import price_per_hour
from orchestrator.slices import CapacityBlock, Market, OnDemand, Spot

CENTRAL = "us-central1"

# us-central1, from public estimates that quote Google's pages, and from SkyPilot catalog v9; read 2026-11-26.
PRICES: dict[tuple[str, Market], float] = {
    ("e2-standard-8", OnDemand()): 0.26805,
    ("e2-highmem-8", OnDemand()): 0.36160,
    ("e2-standard-8", Spot()): 0.15470,
    ("n2-highmem-16", OnDemand()): 1.04811,
    ("n2-highmem-128", OnDemand()): 7.70698,
    ("n2-highmem-128", Spot()): 3.32317,
    ("g2-standard-4", OnDemand()): 0.70683228,
    ("g2-standard-24", OnDemand()): 0.88075 + 2 * 0.560040239,
    ("a2-highgpu-1g", OnDemand()): 3.673385,
    ("a2-highgpu-8g", OnDemand()): 29.38708,
    ("a2-highgpu-1g", Spot()): 1.92768,  # recorded from the API on 2026-08-02
    ("a2-megagpu-16g", OnDemand()): 8.79698 + 46.94253,
    ("a2-ultragpu-1g", OnDemand()): 5.06879789,
    ("a2-ultragpu-8g", OnDemand()): 40.550383123,
}


@pytest.mark.parametrize(("known", "dollars"), PRICES.items())
def test_prices_are_the_published_ones(known: tuple[str, Market], dollars: float) -> None:
    name, market = known
    price = price_per_hour(resolve(name), market, CENTRAL)
    assert price is not None and price.low == price.high == pytest.approx(dollars, abs=6e-5)


def test_unknown_prices_are_unknown() -> None:
    assert price_per_hour(resolve("a2-ultragpu-1g"), Spot()) is None
    assert price_per_hour(resolve("g2-standard-4"), OnDemand(), "asia-east1") is None
    assert price_per_hour(resolve("g2-standard-4"), CapacityBlock("cr-1")) is None


def test_the_front_has_the_same_types_in_its_own_table() -> None:
    """Written apart, from the API's own list: an error in one of them shows here."""
    ours = {one.name: (one.vcpus, one.ram_gib * 1024, one.chips) for one in compute.list_types()}
    theirs = {one.name: (one.vcpus, one.memory_mb, one.gpus) for one in types.plain_types().values()}
    assert ours == theirs
    for one in compute.list_types():
        assert types.zones_of(one.name) <= set(one.zones), one.name


def test_a_type_has_its_chips_and_its_zones() -> None:
    found = compute.find_type("G2-Standard-48")
    assert found is not None
    assert (found.chip, found.chips, found.device, found.normalised_from) == ("L4", 4, "cuda", "G2-Standard-48")
    assert found.zones[:3] == ("us-central1-a", "us-central1-b", "us-central1-c")
    assert all(one.zones and len(set(one.zones)) == len(one.zones) for one in compute.list_types())
    assert compute.find_type("H100:8") is None and compute.find_type("ct6e-standard-8t") is None
