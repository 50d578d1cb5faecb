"""Prices that AWS itself gives, over real sockets with the real client: all forms, pages, half a refusal."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.cloud import aws_scenario
from orch_fronts.aws.pricing import PricingFront, list_products
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.tables import list_price
from orchestrator.catalog.ec2 import load_instances
from orchestrator.catalog.refreshed import DAY, PriceRow, Refreshed, merge_refreshed
from orchestrator.cloud_access import AWS_API
from orchestrator.providers.aws import prices
from orchestrator.providers.aws.price_list import read_product
from orchestrator.providers.price_refresh import PriceRequest, Progress, summarise_history
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario

NOW, REGIONS = 1_795_000_000.0, ("us-east-1", "eu-north-1")
LOCAL_ZONE = "us-west-2-lax-1a"
P5, METAL = "p5.48xlarge", "g4dn.metal"
FEW = (P5, METAL, "trn2.48xlarge", "m7i.large")


class Front(PricingFront):
    """The Price List, and a refusal in its place."""

    refuse: AwsRefusal | None = None

    def handle(self, call: AwsCall) -> AwsAnswer:
        if self.refuse is not None:
            raise self.refuse
        return super().handle(call)


class Cloud:
    """A server, and what its user asks."""

    def __init__(self, server: AwsServer, front: Front) -> None:
        self.server, self.front, self.counts = server, front, dict[str, tuple[int, int]]()

    def read(self, *regions: str, days: int = 2) -> Refreshed:
        request = PriceRequest(now=NOW, today="2026-11-26", regions=regions or REGIONS, days=days)
        return prices.read_prices(request, Progress(self._count))

    def calls(self, operation: str) -> int:
        return sum(one.operation == operation for one in self.server.requests)

    def _count(self, what: str, done: int, total: int) -> None:
        self.counts[what] = done, total


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Generator[Cloud]:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    access = InMemory(replace(aws_scenario(Scenario()), page=50), ManualClock(NOW))
    front = Front(access, page=7)
    monkeypatch.setattr(prices, "list_machines", lambda: [load_instances()[name] for name in FEW])
    with AwsServer(access, fronts={"pricing": front}) as server:
        monkeypatch.setenv(AWS_API, server.url)
        yield Cloud(server, front)


def by_place(found: Refreshed, name: str, market: str) -> Mapping[tuple[str, str], PriceRow]:
    return {(one.region, one.zone): one for one in found.rows if (one.name, one.market) == (name, market)}


def test_the_whole_of_it_in_two_regions(cloud: Cloud) -> None:
    found = cloud.read()
    listed = by_place(found, P5, "on-demand")
    assert {place[0]: one.low for place, one in listed.items()} == {
        region: float(list_price(P5, region)) for region in REGIONS
    }
    assert by_place(found, METAL, "on-demand")["us-east-1", ""].low == float(list_price(METAL, "us-east-1"))
    assert by_place(found, "trn2.48xlarge", "on-demand") == {}, "its products are blocks alone, at $0"
    spot = by_place(found, P5, "spot")
    assert {place[0] for place in spot} == set(REGIONS) and all(place[1].startswith(place[0]) for place in spot)
    assert all(0.29 < one.low / float(list_price(P5, one.region)) < one.high for one in spot.values())
    assert all(one.low <= one.typical <= one.high and one.low < one.high for one in spot.values())
    block = by_place(found, P5, "block")
    assert block and all(one.low == pytest.approx(39.33) for one in block.values())
    assert set(found.offered[P5]) == {place[1] for place in spot}
    assert {one.source for one in found.rows} == {prices.PRICE_LIST, prices.SPOT_HISTORY, prices.BLOCKS}
    assert found.unread == () and {one.as_of for one in found.rows} == {"2026-11-26"}
    assert cloud.counts == {"regions": (2, 2), "on-demand prices": (4, 4)}


def test_pages_are_read_to_the_last(cloud: Cloud) -> None:
    few = cloud.read("us-east-1", days=1)
    pages = cloud.calls("GetProducts")
    assert pages > 4, "several of one type"
    cloud.front.page = 100
    assert cloud.read("us-east-1", days=1).rows == few.rows and cloud.calls("GetProducts") == pages + 4
    cloud.server.requests.clear()
    cloud.read("us-east-1", days=9)
    assert cloud.calls("DescribeSpotPriceHistory") > 2


def test_half_a_refusal_keeps_the_other_half(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = partial(_refuse, cloud.server.ec2.handle, "eu-north-1")
    monkeypatch.setattr(cloud.server.ec2, "handle", refuse)
    found = cloud.read()
    refused = ("places", "spot prices", "prices of Capacity Blocks")
    assert {one.what for one in found.unread} == {f"{what} in eu-north-1" for what in refused}
    assert all("explicit deny" in one.why for one in found.unread)
    assert {one.region for one in found.rows if one.market == "spot"} == {"us-east-1"}
    assert {one.region for one in found.rows if one.market == "on-demand"} == set(REGIONS)


@pytest.mark.parametrize(
    ("code", "is_refusal"), [("UnauthorizedOperation", True), ("SomethingNew", True), ("InvalidParameterValue", False)]
)
def test_refused_blocks_are_named_and_keep_their_older_price(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, code: str, is_refusal: bool
) -> None:
    old = cloud.read("us-east-1")
    answer = partial(_refuse_operation, cloud.server.ec2.handle, "DescribeCapacityBlockOfferings", code)
    monkeypatch.setattr(cloud.server.ec2, "handle", answer)
    found = cloud.read("us-east-1")
    assert [one.what for one in found.unread] == ["prices of Capacity Blocks in us-east-1"] * is_refusal
    assert all("no blocks for you" in one.why for one in found.unread)
    assert by_place(old, P5, "block") and not by_place(found, P5, "block")
    kept = by_place(merge_refreshed(found, old, ("us-east-1",)), P5, "block")
    assert kept == (by_place(old, P5, "block") if is_refusal else {})


def test_a_refused_price_list_is_named_once_and_spot_prices_stay(cloud: Cloud) -> None:
    cloud.front.refuse = AwsRefusal("AccessDeniedException", "not authorized to perform: pricing:GetProducts")
    found = cloud.read()
    (refused,) = found.unread
    assert refused.what == "on-demand prices" and "pricing:GetProducts" in refused.why
    assert {one.market for one in found.rows} == {"spot", "block"}


def test_a_region_that_is_not_enabled_is_named(cloud: Cloud) -> None:
    found = cloud.read("us-east-1", "mars-north-1")
    assert [one.regions for one in found.unread] == [("mars-north-1",)]
    assert found.rows


def test_a_local_zone_is_no_zone_of_its_region(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cloud.read("us-west-2")
    zone = min(one.zone for one in before.rows if one.market == "block")
    monkeypatch.setattr(cloud.server.ec2, "handle", partial(_rename_zone, cloud.server.ec2.handle, zone, LOCAL_ZONE))
    found = cloud.read("us-west-2")
    assert found.rows == tuple(one for one in before.rows if one.zone != zone)
    assert found.offered == {name: tuple(one for one in zones if one != zone) for name, zones in before.offered.items()}
    assert {one.zone[:-1] for one in found.rows if one.market == "spot"} == {"us-west-2"}


def _rename_zone(handle: Any, zone: str, name: str, call: AwsCall) -> AwsAnswer:
    answer: AwsAnswer = handle(call)
    return replace(answer, body=answer.body.replace(f">{zone}<".encode(), f">{name}<".encode()))


def _refuse(handle: Any, region: str, call: AwsCall) -> AwsAnswer:
    if call.region == region:
        words = "You are not authorized to perform this operation with an explicit deny in a service control policy"
        raise AwsRefusal("UnauthorizedOperation", words, 403)
    answer: AwsAnswer = handle(call)
    return answer


def _refuse_operation(handle: Any, operation: str, code: str, call: AwsCall) -> AwsAnswer:
    if call.operation == operation:
        raise AwsRefusal(code, "no blocks for you", 403)
    answer: AwsAnswer = handle(call)
    return answer


def _product(**changed: Any) -> str:
    """Return a product of P5 in us-east-1 with some parts replaced, by their paths with dots."""
    product = next(
        one
        for one in list_products()
        if one["product"]["attributes"] | {"instanceType": P5, "regionCode": "us-east-1"}
        == one["product"]["attributes"]
    )
    term = next(iter(product["terms"]["OnDemand"].values()))
    dimension = next(iter(term["priceDimensions"].values()))
    product["product"]["attributes"] |= changed.pop("attributes", {})
    dimension.update(changed.pop("dimension", {}))
    return json.dumps({**product, **changed})


def test_a_product_is_json_in_a_string() -> None:
    assert read_product(_product(), P5) == ("us-east-1", 55.04)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        json.dumps({"product": {"attributes": []}}),
        _product(attributes={"capacitystatus": "AllocatedCapacityReservation"}),
        _product(attributes={"marketoption": "CapacityBlock"}),
        _product(attributes={"operatingSystem": "Windows"}),
        _product(attributes={"preInstalledSw": "SQL Std"}),
        _product(attributes={"tenancy": "Dedicated"}),
        _product(attributes={"tenancy": "Host"}),
        _product(attributes={"locationType": "AWS Local Zone"}),
        _product(attributes={"instanceType": "p5.4xlarge"}),
        _product(dimension={"pricePerUnit": {"CNY": "400.0"}}),
        _product(dimension={"pricePerUnit": {"USD": "free"}}),
        _product(dimension={"pricePerUnit": {"USD": "0.0000000000"}}),
        _product(dimension={"pricePerUnit": {"USD": "-1"}}),
        _product(dimension={"unit": "Quantity"}),
        _product(terms={"Reserved": json.loads(_product())["terms"]["Reserved"]}),
        _product(terms={"OnDemand": {}, "Reserved": json.loads(_product())["terms"]["Reserved"]}),
    ],
)
def test_no_other_product_is_read_as_on_demand(text: str) -> None:
    assert read_product(text, P5) is None


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ([(0.0, 5.0)], (5, 5, 5)),
        ([(-9 * DAY, 5.0)], (5, 5, 5)),  # in effect at the start
        ([(-9 * DAY, 1.0), (-2 * DAY, 5.0)], (5, 5, 5)),  # 1.0 was over before
        ([(0.0, 1.0), (DAY, 9.0)], (1, 9, 9)),  # 9.0 for six of seven days
        ([(6 * DAY, 9.0), (0.0, 1.0)], (1, 1, 9)),  # in any order
        ([(3 * DAY, 4.0)], (4, 4, 4)),  # nothing is known of the time before
        ([(9 * DAY, 4.0)], (4, 4, 4)),  # a clock that is wrong
        ([(0.0, 2.0), (2 * DAY, 1.0), (5 * DAY, 3.0)], (1, 2, 3)),
    ],
)
def test_the_typical_price_is_that_of_half_of_the_time(
    changes: list[tuple[float, float]], summary: tuple[float, float, float]
) -> None:
    assert summarise_history(changes, 0.0, 7 * DAY) == summary
