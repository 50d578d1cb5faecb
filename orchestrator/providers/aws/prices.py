"""Prices as AWS itself gives them: the Price List, spot history, offerings of instance types and of Capacity Blocks.

Sources: AWS Price List Query API reference; DescribeSpotPriceHistory, DescribeInstanceTypeOfferings and
DescribeCapacityBlockOfferings, EC2 API reference (service models of botocore 1.44.5, November 2026).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from orchestrator.catalog.ec2 import list_machines
from orchestrator.catalog.refreshed import DAY, PriceRow, Refreshed, Unread
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.driver import DRIVER
from orchestrator.providers.aws.price_list import list_filters, read_product
from orchestrator.providers.aws.session import HOME_REGION, AwsSession, open_session
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.price_refresh import (
    MOST_PAGES,
    PriceRequest,
    Progress,
    Readings,
    map_at_once,
    summarise_history,
)

PRICE_LIST = "AWS Price List Query API, GetProducts"
SPOT_HISTORY = "EC2, DescribeSpotPriceHistory"
BLOCKS = "EC2, DescribeCapacityBlockOfferings"
_SYSTEMS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")  # what machines of a VPC are called differs with the account
_BLOCK_HOURS = 24
_NO_BLOCKS = (Kind.INVALID, Kind.NOT_OFFERED, Kind.NOT_FOUND)
_MOST_FILTERED = 200  # values of all filters of a call ("List and filter using the CLI and API", EC2 User Guide)


def read_prices(request: PriceRequest, progress: Progress) -> Refreshed:
    """Return what AWS gives.

    Raises:
        OrchError: It cannot be asked at all.
    """
    reader = _Reader(open_session(request.account), request, progress)
    found = Readings()
    regions = reader.list_regions(found)
    for part in map_at_once(partial(reader.read_region, of=len(regions)), regions):
        found.add(part)
    found.add(reader.read_price_list())
    return found.to_refreshed(DRIVER.name, request)


@dataclass(frozen=True, slots=True)
class _Reader:
    session: AwsSession
    request: PriceRequest
    progress: Progress
    names: tuple[str, ...] = field(default_factory=lambda: tuple(one.name for one in list_machines()))

    def list_regions(self, found: Readings) -> tuple[str, ...]:
        """Return the regions that the account has enabled and that are requested."""
        try:
            listed = Calls(self.session, self.session.region).every("DescribeRegions", "Regions", {})
        except Refused as refused:
            found.unread.append(
                Unread("spot prices, Capacity Blocks and places", str(refused.answer), ("spot", "block"))
            )
            return ()
        enabled = tuple(sorted(str(one["RegionName"]) for one in listed))
        missing = [region for region in self.request.regions if region not in enabled]
        found.unread += [
            Unread(
                f"spot prices, Capacity Blocks and places in {region}",
                "not enabled, or no region",
                ("spot", "block"),
                (region,),
            )
            for region in missing
        ]
        return tuple(region for region in enabled if self.request.wants(region))

    def read_region(self, region: str, of: int) -> Readings:
        """Return where the machines are sold in a region, their spot prices, and those of blocks."""
        found, calls = Readings(), Calls(self.session, region)
        try:
            sold = self._read_offerings(calls)
        except Refused as refused:
            found.unread.append(Unread(f"places in {region}", str(refused.answer)))
            sold = {name: list[str]() for name in self.names}
        found.offered = {name: zones for name, zones in sold.items() if zones}
        if sold:
            self._try(found, "spot prices", "spot", region, partial(self._read_spot, calls, tuple(sold)))
            self._try(found, "prices of Capacity Blocks", "block", region, partial(self._read_blocks, calls, sold))
        self.progress.step("regions", of)
        return found

    def read_price_list(self) -> Readings:
        """Return the on-demand prices, with one question for each machine: it has a product in each region."""
        found = Readings()
        silence: list[Refused] = []  # one question to a server that does not answer takes minutes

        def read(name: str) -> list[PriceRow]:
            if silence:
                raise silence[0]
            try:
                return self._read_products(name)
            except Refused as refused:
                if refused.answer.kind is Kind.NO_ANSWER:
                    silence.append(refused)
                raise

        def ask(name: str) -> Readings:
            one = Readings()
            self._try(one, f"on-demand prices of {name}", "on-demand", "", partial(read, name))
            self.progress.step("on-demand prices", len(self.names))
            return one

        for part in map_at_once(ask, self.names):
            found.add(part)
        return _join_refusals(found, len(self.names))

    def _try(
        self, found: Readings, what: str, market: str, region: str, read: Callable[[], Sequence[PriceRow]]
    ) -> None:
        try:
            found.rows += read()
        except Refused as refused:
            where = f"{what} in {region}" if region else what
            found.unread.append(Unread(where, str(refused.answer), (market,), (region,) if region else ()))

    def _read_offerings(self, calls: Calls) -> dict[str, list[str]]:
        sold: dict[str, list[str]] = {}
        for start in range(0, len(self.names), _MOST_FILTERED):
            names = self.names[start : start + _MOST_FILTERED]
            listed = calls.every(
                "DescribeInstanceTypeOfferings",
                "InstanceTypeOfferings",
                {"instance-type": names},
                LocationType="availability-zone",
            )
            for one in listed:
                if _is_usual_zone(str(one["Location"]), calls.region):
                    sold.setdefault(str(one["InstanceType"]), []).append(str(one["Location"]))
        return sold

    def _read_spot(self, calls: Calls, names: Sequence[str]) -> list[PriceRow]:
        start, end = self.request.now - self.request.days * DAY, self.request.now
        listed = calls.every(
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            {},
            InstanceTypes=list(names),
            ProductDescriptions=list(_SYSTEMS),
            StartTime=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)),
        )
        changes: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for one in listed:
            usd = float(one["SpotPrice"])
            if usd > 0:
                place = str(one["InstanceType"]), str(one["AvailabilityZone"])
                changes.setdefault(place, []).append((one["Timestamp"].timestamp(), usd))
        return [
            self._row(name, "spot", calls.region, zone, summarise_history(known, start, end), SPOT_HISTORY)
            for (name, zone), known in sorted(changes.items())
            if _is_usual_zone(zone, calls.region)
        ]

    def _read_blocks(self, calls: Calls, sold: Mapping[str, Sequence[str]]) -> list[PriceRow]:
        """Return what one instance costs an hour in the blocks of a day that are for sale now."""
        names = [one.name for one in list_machines() if one.capacity_block and one.name in sold]
        prices: dict[tuple[str, str], list[float]] = {}
        for name in names:
            for one in _read_block_offerings(calls, name):
                hours, count = int(one["CapacityBlockDurationHours"]), int(one["InstanceCount"])
                usd = float(one["UpfrontFee"]) / hours / count
                if one.get("CurrencyCode", "USD") == "USD" and usd > 0:
                    prices.setdefault((name, str(one.get("AvailabilityZone", ""))), []).append(usd)
        return [
            self._row(name, "block", calls.region, zone, (min(known), median(known), max(known)), BLOCKS)
            for (name, zone), known in sorted(prices.items())
            if not zone or _is_usual_zone(zone, calls.region)
        ]

    def _read_products(self, name: str) -> list[PriceRow]:
        calls = Calls(self.session, HOME_REGION)  # the Price List is served there for all regions
        params: dict[str, Any] = {"ServiceCode": "AmazonEC2", "Filters": list_filters(name), "MaxResults": 100}
        highest: dict[str, float] = {}
        for _ in range(MOST_PAGES):
            page = calls.read("pricing", "GetProducts", params)
            for text in page.get("PriceList", ()):
                if (product := read_product(text, name)) is not None:
                    region, usd = product
                    highest[region] = max(usd, highest.get(region, 0.0))
            if not page.get("NextToken"):
                break
            params["NextToken"] = page["NextToken"]
        return [
            self._row(name, "on-demand", region, "", (usd, usd, usd), PRICE_LIST)
            for region, usd in sorted(highest.items())
            if self.request.wants(region)
        ]

    def _row(
        self, name: str, market: str, region: str, zone: str, usd: tuple[float, float, float], source: str
    ) -> PriceRow:
        low, typical, high = usd
        return PriceRow(
            name=name,
            market=market,
            region=region,
            zone=zone,
            low=low,
            typical=typical,
            high=high,
            source=source,
            as_of=self.request.today,
        )


def _is_usual_zone(zone: str, region: str) -> bool:
    """Return whether a zone is `us-west-2a` of a region, and no local or Wavelength zone: those have other prices.

    EC2 lists also Local Zones that the account has opted into (DescribeCapacityBlockOfferings, EC2 API reference;
    Price List, attribute locationType, 2026).
    """
    return zone[:-1] == region


def _read_block_offerings(calls: Calls, name: str) -> Sequence[Thing]:
    """Return the blocks of one instance that are for sale; none where the region sells none.

    Raises:
        Refused: It is not known.
    """
    try:
        return calls.every(
            "DescribeCapacityBlockOfferings",
            "CapacityBlockOfferings",
            {},
            InstanceType=name,
            InstanceCount=1,
            CapacityDurationHours=_BLOCK_HOURS,
        )
    except Refused as refused:
        if refused.answer.kind in _NO_BLOCKS:
            return ()
        raise


def _join_refusals(found: Readings, asked: int) -> Readings:
    """Name a refusal of all machines once."""
    if len(found.unread) == asked and len({one.why for one in found.unread}) == 1:
        found.unread = [Unread("on-demand prices", found.unread[0].why, ("on-demand",))]
    return found
