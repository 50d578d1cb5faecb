"""Prices are dated, and unknown is never zero."""

import pytest

from orchestrator.catalog import ec2, tpu
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import price_per_hour
from orchestrator.slices import CapacityBlock, OnDemand, Owned, Reservation, Spot

# accelerator, market, region: low, high (Google's and Amazon's list prices, see catalog/data)
GOLDEN = [
    ("v5litepod-16", OnDemand(), "", 19.20, 19.20),
    ("v5litepod-16", OnDemand(), "us-west4", 19.20, 19.20),
    ("v5litepod-16", OnDemand(), "us-south1", 22.656, 22.656),
    ("v5litepod-16", OnDemand(), "europe-west4", 24.96, 24.96),
    ("v5litepod-16", Spot(), "us-west4", 7.68, 7.68),
    ("v5litepod-16", Spot(), "", 3.92, 9.60),
    ("v4-32", OnDemand(), "us-central2", 51.52, 51.52),
    ("v2-8", OnDemand(), "", 4.50, 4.50),
    ("v2-32", OnDemand(), "", 24.0, 24.0),
    ("v3-32", Spot(), "", 9.6, 9.6),
    ("v6e-8", OnDemand(), "asia-northeast1", 25.92, 25.92),
    ("H100:8", OnDemand(), "", 55.04, 55.04),
    ("Trainium:16", OnDemand(), "us-east-1", 21.50, 21.50),
    ("Trainium2:16", Spot(), "us-east-2", 23.06, 23.06),
    ("p4d.24xlarge", Spot(), "", 8.2, 9.7),
]


@pytest.mark.parametrize(("name", "market", "region", "low", "high"), GOLDEN)
def test_golden_prices(name: str, market: OnDemand | Spot, region: str, low: float, high: float) -> None:
    price = price_per_hour(resolve(name), market, region)
    assert price is not None
    assert (price.low, price.high) == (pytest.approx(low), pytest.approx(high))
    assert price.as_of >= "2026-07-20"


@pytest.mark.parametrize(
    ("name", "market", "region"),
    [
        ("tpu7x-8", OnDemand(), ""),
        ("p5e.48xlarge", OnDemand(), ""),  # no on-demand offer exists
        ("Trainium2:16", OnDemand(), ""),
        ("v5litepod-16", Spot(), "us-south1"),
        ("v5litepod-16", OnDemand(), "africa-south1"),
        ("H100:8", OnDemand(), "eu-west-1"),
        ("H100:8", CapacityBlock("cr-1"), ""),
        ("v5p-8", Reservation("r"), ""),
        ("cpu", OnDemand(), ""),
    ],
)
def test_unknown_is_none_and_never_zero(name: str, market: OnDemand, region: str) -> None:
    assert price_per_hour(resolve(name), market, region) is None


def test_no_rented_machine_is_free_in_any_market() -> None:
    for name in (*tpu.list_common_names(), *ec2.load_instances()):
        for market in (OnDemand(), Spot()):
            price = price_per_hour(resolve(name), market)
            assert price is None or (0 < price.low <= price.high and price.as_of), name


def test_nothing_is_rented_on_machines_of_ones_own() -> None:
    local = price_per_hour(resolve("local:v5litepod-16"), OnDemand())
    own = price_per_hour(resolve("H100:8"), Owned())
    assert local is not None
    assert own is not None
    assert (local.high, own.high) == (0.0, 0.0)
    assert "your own computer" in str(local)


def test_a_price_says_where_and_when_it_was_read() -> None:
    price = price_per_hour(resolve("v5e-16"), OnDemand(), "us-west4")
    assert price is not None
    assert str(price.times(2)) == "$38.40 an hour (list price, us-west4, 2026-11-20)"


def test_the_stand_in_for_unknown_v6e_prices_is_not_in_the_table() -> None:
    from orchestrator.catalog.tables import read_rows

    assert max(row.number("usd") for row in read_rows("tpu_prices", "price")) < 100
