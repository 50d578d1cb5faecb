"""Prices that Google itself gives, over real sockets with the real client: SKUs of all kinds, pages, half a refusal."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch_fronts.google.billing import BillingFront, list_skus
from orch_fronts.google.cloud import google_scenario
from orch_fronts.google.grants import Grants
from orch_fronts.google.methods import PREFIXES
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.catalog.compute import load_types
from orchestrator.catalog.refreshed import PriceRow, Refreshed
from orchestrator.cloud_access import GOOGLE_API
from orchestrator.providers.google import prices
from orchestrator.providers.google.skus import SkuPrices, read_amount
from orchestrator.providers.price_refresh import PriceRequest, Progress
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario

BILLING = PREFIXES["cloudbilling"]


class Cloud:
    """A server, and what its user asks."""

    def __init__(self, server: TpuServer, front: BillingFront) -> None:
        self.server, self.front = server, front

    def read(self, *regions: str) -> Refreshed:
        request = PriceRequest(now=1.0, today="2026-11-26", regions=regions)
        return prices.read_prices(request, Progress(_ignore))

    def count(self, word: str) -> int:
        return sum(word in path for _, path, _ in self.server.requests)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Generator[Cloud]:
    front = BillingFront(page=10)
    access = InMemory(replace(google_scenario(Scenario()), page=100), ManualClock())
    with TpuServer(access, fronts={BILLING: front}) as server:
        monkeypatch.setenv(GOOGLE_API, server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield Cloud(server, front)


def _ignore(what: str, done: int, total: int) -> None:
    del what, done, total


def find(found: Refreshed, name: str, market: str, region: str) -> float | None:
    rows: dict[tuple[str, str, str], PriceRow] = {(one.name, one.market, one.region): one for one in found.rows}
    return rows[name, market, region].low if (name, market, region) in rows else None


def test_the_whole_of_it(cloud: Cloud) -> None:
    found = cloud.read()
    assert found.unread == ()
    # Recordings of the API: v6e in Columbus.
    markets = {market: find(found, "tpu-v6e", market, "us-east5") for market in ("on-demand", "spot", "flex-start")}
    assert markets == {"on-demand": 2.7, "spot": 1.4033, "flex-start": 1.35}
    assert find(found, "tpu-v4", "on-demand", "us-central2") == 3.22
    assert find(found, "tpu-v4", "spot", "us-central2") == 0.975, "an old SKU of spot says OnDemand"
    assert find(found, "tpu-v3-single", "on-demand", "us-central1") == 2
    assert find(found, "tpu-v3-pod", "on-demand", "us-central1") == 8.1
    assert find(found, "tpu-v3-single", "spot", "us-central1") == 0.6
    assert find(found, "tpu-tpu7x", "on-demand", "us-central1") is None, "its unit is published nowhere"
    # A2 by its parts: 12 x 0.03161 + 85 x 0.00424 + 2.93391; and as recorded on 2026-08-02.
    a2 = {market: find(found, "a2-highgpu-1g", market, "us-central1") for market in ("on-demand", "spot", "flex-start")}
    assert a2 == {"on-demand": 3.67363, "spot": 1.92768, "flex-start": 2.02038}
    ultra = find(found, "a2-ultragpu-1g", "on-demand", "us-central1")
    assert ultra == pytest.approx(12 * 0.03161 + 170 * 0.00424 + 3.92808 + 375 * 0.08 / 730)
    assert find(found, "e2-standard-8", "on-demand", "us-central1") == pytest.approx(0.26805, abs=1e-5)
    assert find(found, "g2-standard-4", "on-demand", "europe-west4") == pytest.approx(0.70683, abs=1e-5)
    assert {one.source for one in found.rows} == {prices.SOURCE}


def test_places_are_those_that_sell_it_and_not_those_of_a_sku(cloud: Cloud) -> None:
    found = cloud.read()
    assert find(found, "tpu-v5e", "on-demand", "us-west1") is not None, "the API lists it there"
    assert find(found, "tpu-v5e", "on-demand", "asia-south2") is None, "a SKU alone sells nothing"
    assert find(found, "a2-ultragpu-1g", "on-demand", "us-west1") is None
    assert "us-west4-a" in found.offered["tpu-v5e"]
    assert set(found.offered["g2-standard-4"]) >= {"us-central1-a", "europe-west4-a"}


def test_what_misses_a_part_has_no_price(cloud: Cloud) -> None:
    found = cloud.read()
    assert find(found, "e2-standard-8", "spot", "us-central1") is None, "there is no price of its memory"
    assert find(found, "a2-ultragpu-1g", "spot", "us-central1") is None
    assert find(found, "g2-standard-4", "flex-start", "us-central1") is None


def test_commitments_reservations_and_other_kinds_are_not_read_as_on_demand(cloud: Cloud) -> None:
    found = cloud.read()
    assert find(found, "tpu-v5p", "on-demand", "europe-west4") == 4.3, "1.911 is for three years"
    usd = {one.low for one in found.rows}
    assert usd.isdisjoint({1.911, 2.94, 1.89, 2.9, 99.0}), "calendar mode, capacity optimized, an unknown TPU"
    assert find(found, "n2-standard-2", "on-demand", "us-central1") == pytest.approx(2 * 0.031611 + 8 * 0.004237)


def test_pages_are_read_to_the_last(cloud: Cloud) -> None:
    few = cloud.read("us-east5")
    pages = cloud.count("/skus")
    cloud.front.page = 5000
    assert cloud.read("us-east5").rows == few.rows
    assert pages > 6 and cloud.count("/skus") == pages + 2
    assert cloud.count("aggregated/machineTypes") > 4 and {one.region for one in few.rows} == {"us-east5"}


@pytest.mark.parametrize("currency", ["EUR"])
def test_another_currency_is_refused(cloud: Cloud, currency: str) -> None:
    cloud.front.currency = currency
    assert cloud.read().rows == ()


def test_half_a_refusal_keeps_the_other_half(cloud: Cloud) -> None:
    cloud.server.guard.grants = replace(
        Grants(), permissions=Grants().permissions - {"compute.machineTypes.list", "tpu.locations.list"}
    )
    found = cloud.read()
    assert [one.what for one in found.unread] == ["TPU zones", "places of machine types"]
    assert "tpu.locations.list" in found.unread[0].why and "compute.machineTypes.list" in found.unread[1].why
    assert find(found, "tpu-v6e", "on-demand", "us-east5") == 2.7, "in the regions of orch's own table"


def test_without_the_billing_api_only_places_are_read(cloud: Cloud) -> None:
    cloud.server.guard.grants = replace(Grants(), apis=Grants().apis - {"cloudbilling.googleapis.com"})
    found = cloud.read()
    assert found.rows == () and found.offered
    assert all("cloudbilling.googleapis.com" in one.why or "Billing" in one.why for one in found.unread)


def _sku(description: str, *, usage: str = "OnDemand", unit: str = "h", **price: Any) -> dict[str, Any]:
    money = {"currencyCode": "USD", "units": "1", "nanos": 500_000_000, **price}
    rate = {"startUsageAmount": 0, "unitPrice": money}
    return {
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [rate]}}],
    }


def _chips(*skus: dict[str, Any], market: str = "on-demand") -> dict[str, float]:
    found = SkuPrices()
    found.add(skus)
    return {name: usd for name, _, usd in found.price_chips(market)}


def test_a_plain_sku_is_read() -> None:
    assert _chips(_sku("TpuV6e running in Iowa")) == {"tpu-v6e": 1.5}


@pytest.mark.parametrize(
    "sku",
    [
        {},
        {"description": "TpuV6e running in Iowa"},
        {**_sku("TpuV6e running in Iowa"), "pricingInfo": []},
        _sku("TpuV6e running in Iowa", usage="Commit1Yr"),
        _sku("TpuV6e running in Iowa", usage="Preemptible"),
        _sku("TpuV6e running in Iowa", unit="GiBy.h"),
        _sku("TpuV6e running in Iowa", currencyCode="EUR"),
        _sku("TpuV6e running in Iowa", units="0", nanos=0),
        _sku("TpuV6e running in Iowa", units="-1"),
        _sku("TpuV6e running in Iowa", units="free"),
        _sku("Reserved TpuV6e running in Iowa"),
        _sku("Commitment v1: TpuV6e running in Iowa"),
        _sku("Capacity Optimized TpuV6e running in Iowa"),
        _sku("DWS Calendar Mode V6e running in Iowa"),
        _sku("TpuV6e attached to Spot Preemptible VMs running in Iowa"),
        _sku("tpuv6e"),
        _sku("TpuV66e running in Iowa"),
        _sku(""),
    ],
)
def test_no_other_sku_is_read_as_on_demand(sku: dict[str, Any]) -> None:
    assert _chips(sku) == {}


def test_tiers_are_passed_over_and_the_newest_price_counts() -> None:
    tiers = _sku("TpuV6e running in Iowa")
    expression = tiers["pricingInfo"][0]["pricingExpression"]
    expression["tieredRates"] = [*expression["tieredRates"], *expression["tieredRates"]]
    assert _chips(tiers) == {}
    old, new = _sku("TpuV6e running in Iowa", units="9"), _sku("TpuV6e running in Iowa", units="2")
    both = {**old, "pricingInfo": [*old["pricingInfo"], *new["pricingInfo"]]}
    assert _chips(both) == {"tpu-v6e": 2.5}


@given(units=st.integers(0, 10**9), nanos=st.integers(0, 999_999_999), as_text=st.booleans())
def test_units_and_nanos_are_added_exactly(units: int, nanos: int, as_text: bool) -> None:
    price = {"currencyCode": "USD", "units": str(units) if as_text else units, "nanos": nanos}
    found = read_amount(price)
    assert found is not None and found * 10**9 == units * 10**9 + nanos
    assert read_amount({"currencyCode": "USD", "nanos": 5}) == Decimal("5e-9")


def test_every_type_of_the_catalogue_has_its_family() -> None:
    assert [name for name in load_types() if not name.startswith(_prefixes())] == []
    assert all(one.family for one in load_types().values()) and list_skus()


def _prefixes() -> tuple[str, ...]:
    from orchestrator.providers.google.skus import load_table

    return tuple(str(row["prefix"]) for row in load_table()["family"])
