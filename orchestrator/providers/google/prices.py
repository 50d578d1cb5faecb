"""Prices as Google itself gives them: SKUs of the Cloud Billing Catalog, and where machines and TPUs are sold.

Sources: cloudbilling.services.skus.list (it asks for no permission: "all publicly available SKUs"),
compute.machineTypes.aggregatedList and tpu.projects.locations.acceleratorTypes.list, discovery documents of
googleapiclient 2.202 (November 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from orchestrator.catalog.compute import list_types
from orchestrator.catalog.refreshed import PriceRow, Refreshed, Unread
from orchestrator.catalog.tpu import list_generations
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.driver import DRIVER
from orchestrator.providers.google.session import open_session
from orchestrator.providers.google.skus import MARKETS, SkuPrices, list_services
from orchestrator.providers.price_refresh import MOST_PAGES, PriceRequest, Progress, Readings, map_at_once

SOURCE = "Cloud Billing Catalog API, services.skus.list"
_PAGE = 5000  # SKUs; the most and the usual one (services.skus.list)


def read_prices(request: PriceRequest, progress: Progress) -> Refreshed:
    """Return what Google gives.

    Raises:
        OrchError: It cannot be asked at all.
    """
    session = open_session()
    calls = Calls(replace(session, project=request.account or session.project))
    reader = _Reader(calls, request, progress)
    found = Readings()
    for read in (reader.read_tpu_zones, reader.read_type_zones):
        found.add(read())
    found.add(reader.read_skus(found.offered))
    return found.to_refreshed(DRIVER.name, request)


@dataclass(frozen=True, slots=True)
class _Reader:
    calls: Calls
    request: PriceRequest
    progress: Progress

    def read_tpu_zones(self) -> Readings:
        """Return the zones that list each generation of the TPU API."""
        found = Readings()
        if not self.calls.project:
            found.unread.append(Unread("TPU zones", "no project is named: gcloud config set project PROJECT"))
            return found
        try:
            zones = [zone for zone in self._list_locations() if self.request.wants(zone.rpartition("-")[0])]
        except Refused as refused:
            found.unread.append(Unread("TPU zones", str(refused.answer)))
            return found
        for part in map_at_once(partial(self._read_tpu_zone, of=len(zones)), zones):
            found.add(part)
        return found

    def read_type_zones(self) -> Readings:
        """Return the zones that sell each machine type without TPUs."""
        found = Readings()
        if not self.calls.project:
            return found
        known = {one.name for one in list_types()}
        families = "|".join(sorted({one.family for one in list_types()}))

        def ask(service: Any, token: str) -> Any:
            return service.machineTypes().aggregatedList(
                project=self.calls.project,
                filter=f'name eq "({families})-.*"',
                maxResults=500,
                pageToken=token,
                fields="items/*/machineTypes(name),nextPageToken",
            )

        try:
            for page in self._pages("compute", "v1", ask):
                for scope, part in page.get("items", {}).items():
                    zone = scope.rpartition("/")[2]
                    for one in part.get("machineTypes", ()):
                        if one["name"] in known and self.request.wants(zone.rpartition("-")[0]):
                            found.offered.setdefault(one["name"], []).append(zone)
                self.progress.step("pages of machine types", 0)
        except Refused as refused:
            found.unread.append(Unread("places of machine types", str(refused.answer)))
        return found

    def read_skus(self, offered: Mapping[str, list[str]]) -> Readings:
        """Return the prices of what is sold: a SKU also names regions that have no such machine."""
        found, prices = Readings(), SkuPrices()
        for service in list_services():
            try:
                for page in self._pages("cloudbilling", "v1", partial(_ask_skus, service)):
                    prices.add(page.get("skus", ()))
                    self.progress.step("pages of SKUs", 0)
            except Refused as refused:
                # What is missing is not known region by region, so all older prices stay that are not read again.
                found.unread.append(Unread(f"prices of {service}", str(refused.answer), tuple(MARKETS)))
        for market in MARKETS:
            found.rows += self._price_tpus(prices, market, offered)
            found.rows += self._price_types(prices, market, offered)
        return found

    def _price_tpus(self, prices: SkuPrices, market: str, offered: Mapping[str, list[str]]) -> Iterator[PriceRow]:
        sold = {
            f"tpu-{one.name}": _regions((*one.zones, *offered.get(f"tpu-{one.name}", ()))) for one in list_generations()
        }
        for name, region, usd in prices.price_chips(market):
            generation = "-".join(name.split("-")[:2])
            if region in sold.get(generation, ()) and self.request.wants(region):
                yield self._row(name, market, region, usd)

    def _price_types(self, prices: SkuPrices, market: str, offered: Mapping[str, list[str]]) -> Iterator[PriceRow]:
        for machine in list_types():
            sold = _regions((*machine.zones, *offered.get(machine.name, ())))
            for region, usd in prices.price_type(machine, market).items():
                if region in sold and self.request.wants(region):
                    yield self._row(machine.name, market, region, round(usd, 9))

    def _read_tpu_zone(self, zone: str, of: int) -> Readings:
        found = Readings()

        def ask(service: Any, token: str) -> Any:
            where = f"projects/{self.calls.project}/locations/{zone}"
            return service.projects().locations().acceleratorTypes().list(parent=where, pageSize=500, pageToken=token)

        try:
            listed = [one for page in self._pages("tpu", "v2", ask) for one in page.get("acceleratorTypes", ())]
        except Refused as refused:
            listed = []
            if refused.answer.kind is not Kind.NOT_OFFERED:  # else a zone that is closed to the project
                found.unread.append(Unread(f"TPUs in {zone}", str(refused.answer)))
        prefixes = {str(one["type"]).rpartition("-")[0] for one in listed}
        for generation in list_generations():
            if generation.prefix in prefixes:
                found.offered[f"tpu-{generation.name}"] = [zone]
        self.progress.step("TPU zones", of)
        return found

    def _list_locations(self) -> list[str]:
        def ask(service: Any, token: str) -> Any:
            where = f"projects/{self.calls.project}"
            return service.projects().locations().list(name=where, pageSize=500, pageToken=token)

        return [str(one["locationId"]) for page in self._pages("tpu", "v2", ask) for one in page.get("locations", ())]

    def _pages(self, name: str, version: str, ask: Callable[[Any, str], Any]) -> Iterator[dict[str, Any]]:
        yield from islice(self.calls.pages(name, version, ask), MOST_PAGES)

    def _row(self, name: str, market: str, region: str, usd: float) -> PriceRow:
        return PriceRow(
            name=name,
            market=market,
            region=region,
            low=usd,
            typical=usd,
            high=usd,
            source=SOURCE,
            as_of=self.request.today,
        )


def _ask_skus(service_name: str, service: Any, token: str) -> Any:
    return (
        service.services().skus().list(parent=service_name, currencyCode="USD", pageSize=_PAGE, pageToken=token or "")
    )


def _regions(zones: tuple[str, ...]) -> frozenset[str]:
    return frozenset(zone.rpartition("-")[0] for zone in zones)
