"""Refreshed prices go before the tables, row by row; a file that is wrong in any way is passed over, by its name."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog import refreshed as store
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.ec2 import load_instances, priced_regions
from orchestrator.catalog.prices import describe_implausible, find_market_price, list_sold_regions, price_per_hour
from orchestrator.catalog.refreshed import (
    DAY,
    PriceRow,
    Refreshed,
    Unread,
    describe_problems,
    load_refreshed,
    merge_refreshed,
    refreshed_path,
    write_refreshed,
)
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.host_inputs import host_facts
from orchestrator.engine.preparation.notes import plan_notes
from orchestrator.errors import OrchError
from orchestrator.slices import CapacityBlock, FlexStart, OnDemand, Reservation, Spot
from orchestrator.task.parse import parse_task

P5 = "p5.48xlarge"


def row(
    name: str = P5, market: str = "on-demand", region: str = "us-east-1", usd: float = 50.0, **other: Any
) -> PriceRow:
    values: dict[str, Any] = {"low": usd, "typical": usd, "high": usd, "source": "the vendor", "as_of": "2026-11-26"}
    return PriceRow(name=name, market=market, region=region, **{**values, **other})


def keep(*rows: PriceRow, provider: str = "aws", read_at: float | None = None, **other: Any) -> Refreshed:
    made = Refreshed(provider=provider, read_at=time.time() if read_at is None else read_at, rows=rows, **other)
    write_refreshed(made)
    return made


def test_a_refreshed_price_goes_before_the_table_and_the_table_stays_for_the_rest() -> None:
    shipped = price_per_hour(resolve(P5), OnDemand(), "us-west-2")
    keep(row(), row(region="sa-east-1", usd=80.0))
    here, there = (price_per_hour(resolve(P5), OnDemand(), region) for region in ("us-east-1", "sa-east-1"))
    assert here is not None and (here.low, here.high, here.as_of, here.source) == (50, 50, "2026-11-26", "the vendor")
    assert there is not None and there.low == 80 and "sa-east-1" in there.plan_note and "2026-11-26" in there.plan_note
    assert price_per_hour(resolve(P5), OnDemand(), "us-west-2") == shipped is not None
    assert "sa-east-1" in priced_regions(load_instances()[P5], OnDemand())


def test_without_a_region_it_is_the_cheapest_of_the_us_and_else_the_tables() -> None:
    listed = price_per_hour(resolve(P5), OnDemand())
    keep(row(region="eu-north-1", usd=1.0))
    assert price_per_hour(resolve(P5), OnDemand()) == listed, "a price from elsewhere is not the US list price"
    keep(row(region="us-east-1", usd=50.0), row(region="us-west-1", usd=49.0), row(region="eu-north-1", usd=1.0))
    found = price_per_hour(resolve(P5), OnDemand())
    assert found is not None and (found.low, found.region) == (49, "us-west-1")
    unknown = resolve("p5e.48xlarge")
    keep(row("p5e.48xlarge", region="eu-north-1", usd=40.0))
    assert (only := price_per_hour(unknown, OnDemand())) is not None and only.region == "eu-north-1"


def test_without_a_region_a_dearer_refreshed_one_does_not_hide_the_tables_cheaper_ones() -> None:
    slice_ = resolve("v6e-8")
    keep(row("tpu-v6e", "spot", "us-east5", 1.5), provider="gcp")
    there, cheap = (price_per_hour(slice_, Spot(), region) for region in ("us-east5", "us-central1"))
    assert there is not None and there.low == 12 and cheap is not None and cheap.low < 12
    assert price_per_hour(slice_, Spot()) == cheap
    keep(row("tpu-v6e", "spot", "us-east5", 0.1), provider="gcp")
    assert (now := price_per_hour(slice_, Spot())) is not None and (now.low, now.region) == (0.8, "us-east5")


def test_spot_has_a_range_by_zone_and_over_all_zones_of_a_region() -> None:
    keep(
        row(market="spot", zone="us-east-1a", low=10.0, typical=12.0, high=20.0),
        row(market="spot", zone="us-east-1b", low=8.0, typical=9.0, high=11.0),
    )
    both = price_per_hour(resolve(P5), Spot(), "us-east-1")
    one = price_per_hour(resolve(P5), Spot(), "us-east-1", "us-east-1b")
    assert both is not None and (both.low, both.typical, both.high) == (8, 10.5, 20)
    assert one is not None and (one.low, one.middle, one.high) == (8, 9, 11) and "us-east-1b" in one.note
    assert one.times(4).middle == 36


@pytest.mark.parametrize("zone", ["us-east-1-bos-1a", "us-east-1-wl1-bos-wlz-1"])
def test_a_local_zone_has_its_own_price_or_none(zone: str) -> None:
    machine, at = resolve(P5), ("us-east-1", zone)
    assert price_per_hour(machine, OnDemand(), "us-east-1", "us-east-1a") is not None
    assert price_per_hour(machine, OnDemand(), *at) is None and price_per_hour(machine, Spot(), *at) is None
    keep(row(), row(market="spot", zone="us-east-1a", low=8.0, typical=9.0, high=11.0))
    assert price_per_hour(machine, OnDemand(), *at) is None and price_per_hour(machine, Spot(), *at) is None
    keep(row(), row(zone=zone, usd=70.0))
    assert (own := price_per_hour(machine, OnDemand(), *at)) is not None and own.low == 70 and zone in own.note


def test_a_tpu_is_priced_by_its_chips_and_by_the_kind_of_its_slice() -> None:
    keep(
        row("tpu-v5e", region="us-south1", usd=1.5),
        row("tpu-v3-pod", region="us-south1", usd=3.0),
        row("tpu-v3-single", region="us-south1", usd=2.0),
        row("tpu-v6e", "flex-start", region="us-east5", usd=1.35),
        provider="gcp",
    )
    prices = [price_per_hour(resolve(name), OnDemand(), "us-south1") for name in ("v5litepod-16", "v3-8", "v3-32")]
    assert [one.low if one else None for one in prices] == [24, 8, 48]
    flex = price_per_hour(resolve("v6e-8"), FlexStart(2.0), "us-east5")
    assert flex is not None and flex.low == pytest.approx(10.8)


def test_a_machine_is_sold_in_the_region_of_its_zone() -> None:
    zones = ("us-west-2-lax-1a", "us-gov-west-1a", "us-east-1-wl1-bos-wlz-1", "ap-southeast-4c")
    keep(row(), offered={P5: zones})
    new = list_sold_regions(resolve(P5)) - {*resolve(P5).regions}
    assert new == {"us-gov-west-1", "ap-southeast-4"} and {"us-west-2", "us-east-1"} <= {*resolve(P5).regions}
    keep(row("tpu-v6e"), provider="gcp", offered={"tpu-v6e": ("us-south1-ai1b", "northamerica-northeast9-a")})
    assert {"us-south1", "northamerica-northeast9"} <= list_sold_regions(resolve("v6e-8"))


def test_contracts_have_no_price_and_a_new_block_has_one() -> None:
    keep(row(market="block", usd=39.0))
    assert price_per_hour(resolve(P5), CapacityBlock("cr-1"), "us-east-1") is None
    assert price_per_hour(resolve(P5), Reservation("r"), "us-east-1") is None
    found = find_market_price(resolve(P5), "block", "us-east-1")
    assert found is not None and found.low == 39


def test_the_file_is_private_and_read_again_when_it_changes() -> None:
    keep(row())
    path = refreshed_path("aws")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    keep(row(usd=51.5))
    assert (found := price_per_hour(resolve(P5), OnDemand(), "us-east-1")) is not None and found.low == 51.5


def _document(**changed: Any) -> str:
    value = {
        "version": 1,
        "kind": "prices",
        "provider": "aws",
        "read_at": time.time(),
        "sources": ["s"],
        "offered": {},
        "unread": [],
        "prices": _prices(),
    }
    return json.dumps({**value, **changed})


def _prices(name: str = P5, market: str = "on-demand", region: str = "us-east-1", **cells: Any) -> dict[str, Any]:
    right = {"zone": "", "low": 1.0, "typical": 1.0, "high": 1.0, "source": 0, "as_of": "2026-11-26"}
    return {name: {market: {region: [list({**right, **cells}.values())]}}}


def _with(**changed: Any) -> str:
    return _document(prices=_prices(**changed))


WRONG = {
    "no JSON": ("{", "not JSON"),
    "deep": ("[" * 100_000, ""),
    "a list": ("[]", "has no prices"),
    "newer": (_document(version=2), "version 2"),
    "another cloud": (_document(provider="gcp"), "another cloud"),
    "the future": (_document(read_at=time.time() + 9 * DAY), "future"),
    "no date": (_document(read_at=None), "date"),
    "no prices": (_document(prices=None), "another kind"),
    "prices in a list": (_document(prices=[]), "another kind"),
    "no markets": (_document(prices={P5: 3}), "another kind"),
    "no regions": (_document(prices={P5: {"spot": []}}), "another kind"),
    "no rows": (_document(prices={P5: {"spot": {"us-east-1": None}}}), "wrong"),
    "empty": (_document(prices={P5: {"spot": {"us-east-1": []}}}), "wrong"),
    "short": (_document(prices={P5: {"spot": {"us-east-1": [[1]]}}}), "wrong"),
    "a number": (_document(prices={P5: {"spot": {"us-east-1": [1]}}}), "wrong"),
    "a word": (_document(prices={P5: {"spot": {"us-east-1": "us"}}}), "wrong"),
    "a zone that is a number": (_with(zone=5), "wrong"),
    "an escape in a zone": (_with(zone="a\x1b[31m"), "wrong"),
    "no region": (_with(region=""), "wrong"),
    "free": (_with(low=0.0), "wrong"),
    "negative": (_with(low=-1.0), "wrong"),
    "crossed": (_with(high=0.5), "wrong"),
    "infinite": (_with(high=float("inf")), "wrong"),
    "not a number": (_with(low=float("nan")), "wrong"),
    "text": (_with(low="1"), "wrong"),
    "true": (_with(low=True), "wrong"),
    "unknown market": (_with(market="commitment"), "wrong"),
    "a date that is a list": (_with(as_of=["2026-11-26"]), "wrong"),
    "escape": (_with(name="p5\x1b[31m"), "name of no machine"),
    "no source": (_with(source=1), "wrong"),
    "last source": (_with(source=-1), "wrong"),
    "undated": (_with(as_of="yesterday"), "wrong"),
    "no such day": (_with(as_of="2026-19-39"), "wrong"),
    "a day in the future": (_with(as_of="2099-01-01"), "wrong"),
    "read at a number that is no float": (_document(read_at=10**400), "future"),
    "a price that is no float": (_with(high=10**400), "wrong"),
    "almost free": (_with(low=1e-300), "wrong"),
    "offered": (_document(offered=[]), "another kind"),
    "zones": (_document(offered={P5: "us-east-1a"}), "list of words"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_wrong_is_named_and_passed_over(case: str) -> None:
    text, words = WRONG[case]
    listed = price_per_hour(resolve(P5), OnDemand(), "us-east-1")
    keep(row())
    refreshed_path("aws").write_text(text)
    assert price_per_hour(resolve(P5), OnDemand(), "us-east-1") == listed
    (note,) = describe_problems(("aws", "gcp"), time.time())
    assert str(refreshed_path("aws")) in note and words in note and "orch catalog refresh aws" in note


def test_a_file_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(row())
    monkeypatch.setattr(store, "LARGEST", 10)
    refreshed_path("aws").write_text(_document())
    assert "bytes" in load_refreshed("aws").problem


def test_a_file_that_may_not_be_read_is_named() -> None:
    path = refreshed_path("aws")
    path.mkdir(parents=True)
    assert "cannot be read" in load_refreshed("aws").problem


def test_a_pipe_is_not_opened() -> None:
    path = refreshed_path("aws")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert "not a regular file" in load_refreshed("aws").problem


def test_a_price_far_from_the_table_is_passed_over_and_named() -> None:
    listed = price_per_hour(resolve(P5), OnDemand(), "us-east-1")
    keep(row(usd=0.01), row(region="us-west-2", usd=50.0), row(market="spot", usd=9_999.0), row(region="xx-1", usd=0.5))
    assert price_per_hour(resolve(P5), OnDemand(), "us-east-1") == listed is not None
    cheapest = price_per_hour(resolve(P5), OnDemand())
    assert cheapest is not None and (cheapest.low, cheapest.region) == (50, "us-west-2")
    assert "xx-1" not in priced_regions(load_instances()[P5], OnDemand())
    (note,) = describe_implausible([resolve(P5)])
    assert "3 prices in" in note and "p5.48xlarge, on-demand, us-east-1: $0.01" in note and "us-west-2" not in note
    task = parse_task("run: x\nresources: {infra: aws/us-east-1, accelerators: p5.48xlarge}\n", file="t", env={}).only
    assert note in plan_notes(task, host_facts(list_candidates(task)[0]))
    keep(row("tpu-v5e", region="us-south1", usd=0.001), provider="gcp")
    found = price_per_hour(resolve("v5litepod-16"), OnDemand(), "us-south1")
    assert found is None or not found.refreshed, "a price of a chip, and of a slice"


def test_old_prices_are_used_and_said() -> None:
    now = time.time()
    keep(row(as_of=_date(now - 31 * DAY)), read_at=now - 31 * DAY)
    (note,) = describe_problems(("aws",), now)
    assert "31 days ago" in note and (price := price_per_hour(resolve(P5), OnDemand(), "us-east-1")) and price.low == 50
    keep(row(as_of=_date(now - 30 * DAY)), read_at=now - 30 * DAY)
    assert describe_problems(("aws",), now) == ()


def test_a_refresh_of_one_region_leaves_the_note_of_the_others() -> None:
    now = time.time()
    old = keep(*(row(region=one, as_of=_date(now - 90 * DAY)) for one in ("us-east-1", "eu-north-1")), read_at=1.0)
    new = Refreshed(provider="aws", read_at=now, rows=(row(as_of=_date(now)),))
    write_refreshed(merge_refreshed(new, old, ("us-east-1",)))
    (note,) = describe_problems(("aws",), now)
    assert "90 days ago" in note
    write_refreshed(merge_refreshed(new, old))
    assert describe_problems(("aws",), now) == ()


def test_the_age_of_a_file_without_prices_is_that_of_its_reading() -> None:
    keep(read_at=time.time() - 40 * DAY, offered={P5: ("us-east-1a",)})
    (note,) = describe_problems(("aws",), time.time())
    assert "40 days ago" in note


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def test_what_could_not_be_read_keeps_its_older_price_and_date() -> None:
    old = keep(row(usd=1, as_of="2026-11-01"), row(region="eu-west-1", usd=2, as_of="2026-11-01"))
    refused = Unread("on-demand prices in eu-west-1", "denied", ("on-demand",), ("eu-west-1",))
    new = replace(old, rows=(row(usd=3),), unread=(refused,))
    merged = merge_refreshed(new, old)
    assert [(one.region, one.low, one.as_of) for one in merged.rows] == [
        ("us-east-1", 3, "2026-11-26"),
        ("eu-west-1", 2, "2026-11-01"),
    ]
    assert merge_refreshed(replace(new, unread=()), old).rows == new.rows
    assert merge_refreshed(replace(new, unread=(Unread("zones", "denied"),)), old).rows == new.rows


def test_nothing_that_would_not_be_read_again_is_written() -> None:
    keep(row())
    with pytest.raises(OrchError, match="make no sense"):
        keep(row(usd=0))
    assert load_refreshed("aws").refreshed is not None


@given(
    usd=st.floats(min_value=1e-3, max_value=1e5),
    spread=st.floats(min_value=1, max_value=3),
    market=st.sampled_from(store.MARKETS),
    zone=st.sampled_from(["", "us-east-1a"]),
)
def test_what_is_written_is_what_is_read(usd: float, spread: float, market: str, zone: str) -> None:
    low = usd / spread / spread
    made = Refreshed(
        provider="aws",
        read_at=1.5,
        rows=(row(market=market, zone=zone, low=low, typical=max(low, usd / spread), high=usd),),
        offered={P5: ("us-east-1a",)},
        unread=(Unread("x", "\x1b]0;y\x07 é", ("spot",)),),
    )
    assert store.decode_prices("aws", store.encode_prices(made), time.time()).refreshed == made


def test_a_folder_that_cannot_be_made_is_an_error() -> None:
    path = refreshed_path("aws")
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(OrchError, match="cannot be kept"):
        keep(row())
    assert path.parent.is_file()
