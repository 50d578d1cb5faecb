"""The price of a machine, wherever one is asked: refreshed from the vendor, else of orch's dated tables.

None means unknown, and is never shown as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.catalog.machines import ComputeType, LocalHosts, Machine, TpuSlice
from orchestrator.catalog.refreshed import MARKETS, Loaded, PriceRow, list_offered_zones, load_refreshed, refreshed_path
from orchestrator.catalog.rented import load_table
from orchestrator.formatting import format_amount_range, format_dollars
from orchestrator.slices import CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot

_AMAZON_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-[0-9]+")  # names of Google have no hyphen before the number
_FACTOR = 50.0  # between a plausible price, of any region and market, and the US list price that orch has
_FEW = 3  # that a note names


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price in US dollars an hour for one slice or instance; low and high differ where only a range is known.

    Attributes:
        note: Region and kind.
        as_of: ISO date on which the source was read or published.
        typical: Between low and high; None where only the range is known.
        source: Who gave it.
        region: Where it holds; "" where the note names several.
        refreshed: Whether the vendor itself gave it to this installation (`orch catalog refresh`).
    """

    low: float
    high: float
    note: str
    as_of: str
    typical: float | None = None
    source: str = ""
    region: str = ""
    refreshed: bool = False

    @property
    def is_range(self) -> bool:
        return self.low != self.high

    def times(self, count: int) -> Price:
        """Return the price of so many."""
        typical = None if self.typical is None else self.typical * count
        return replace(self, low=self.low * count, high=self.high * count, typical=typical)

    @property
    def plan_note(self) -> str:
        """Return the note as plans keep it; with its date where the vendor gave it."""
        return f"{self.note}, {self.as_of}" if self.refreshed else self.note

    @property
    def middle(self) -> float:
        """Return the typical price; the geometric mean of the range where it is not known."""
        return math.sqrt(self.low * self.high) if self.typical is None else self.typical

    def __str__(self) -> str:
        amount = format_amount_range(self.low, self.high)
        return f"{amount} an hour ({self.note}, {self.as_of})" if self.as_of else f"{amount} an hour ({self.note})"


def price_per_hour(accelerator: Machine, market: Market, region: str = "", zone: str = "") -> Price | None:
    """Return the price of one `accelerator`; None when it is not known for this market and region.

    Reservations and Capacity Blocks have contract prices, which no table holds. Without a region: the US list price.
    """
    return list_prices(accelerator, market, ((region, zone),))[0]


def list_prices(accelerator: Machine, market: Market, places: Iterable[tuple[str, str]]) -> list[Price | None]:
    """Return the price of one `accelerator` in each of some places, as price_per_hour: many are found faster together.

    Args:
        accelerator: What is rented.
        market: How it is rented.
        places: Region and zone of each.
    """
    if isinstance(accelerator, LocalHosts):
        return [Price(low=0.0, high=0.0, note="your own computer", as_of="") for _ in places]
    if isinstance(market, Owned):
        return [Price(low=0.0, high=0.0, note="your own machines, nothing is rented", as_of="") for _ in places]
    word = list_price_market(market)
    if word is None:
        return [None for _ in places]
    known = _Known.load(accelerator, word)
    return [known.find(region, zone) for region, zone in places]


def find_market_price(machine: Machine, market: str, region: str = "", zone: str = "") -> Price | None:
    """Return the price by the word of a market; that of a block is what a new one costs.

    A refreshed price goes before the table's, region by region. Without a region it is the cheapest of the US, and one
    from elsewhere only where the table has none.
    """
    return _Known.load(machine, market).find(region, zone)


def list_refreshed_regions(machine: Machine, market: Market) -> frozenset[str]:
    """Return the regions with a refreshed price; for a contract market also those of on demand."""
    return frozenset(
        region
        for word in list_region_markets(market)
        for name in list_price_names(machine)
        for region in _Known.load(machine, word, name).list_regions()
    )


def describe_implausible(machines: Iterable[Machine]) -> tuple[str, ...]:
    """Return a note for each cloud whose refreshed prices of these machines are passed over in part."""
    found: dict[str, dict[str, None]] = {}
    for machine in machines:
        loaded = load_refreshed(machine.provider) if machine.provider else Loaded()
        for name, market in ((name, market) for name in list_price_names(machine) for market in MARKETS):
            places = set(_Known.load(machine, market, name).list_regions())
            wrong = [region for region in loaded.list_regions(name, market) if region not in places]
            typical = {one: format_dollars(loaded.find_typical(name, market, one)) for one in wrong}
            shown = {f"{name}, {market}, {one}: {dollars}": None for one, dollars in typical.items()}
            found.setdefault(machine.provider, {}).update(shown)
    return tuple(
        f"{len(wrong):,} prices in {refreshed_path(provider)} are not used, because they are over {_FACTOR:g} times "
        f"higher or lower than orch's own ({'; '.join(list(wrong)[:_FEW])}): orch catalog refresh {provider}"
        for provider, wrong in found.items()
        if wrong
    )


def list_refreshed_zones(machine: Machine) -> tuple[str, ...]:
    """Return the zones that sell a machine, as its vendor reported; none where that was not read."""
    return list_offered_zones(machine.provider, list_price_names(machine)) if machine.provider else ()


def has_zone_prices(machine: Machine) -> bool:
    """Return whether zones of one region may have different prices: only refreshed prices do."""
    return bool(machine.provider and load_refreshed(machine.provider).prices)


def list_sold_regions(machine: Machine) -> frozenset[str]:
    """Return the regions that sell a machine, by its vendor's report or else by the tables."""
    zones = [*list_refreshed_zones(machine)]
    if isinstance(machine, TpuSlice | ComputeType):
        zones += machine.zones
    return frozenset((*machine.regions, *map(_region_of, zones)))


def _region_of(zone: str) -> str:
    """Return the region of a zone: of `us-central1-a` of Google, `us-east-1a` and `us-east-1-bos-1a` of Amazon."""
    found = _AMAZON_REGION.match(zone)
    return found[0] if found else zone.rpartition("-")[0]


def _has_own_prices(zone: str) -> bool:
    """Return whether a zone is a Local Zone or a Wavelength Zone of Amazon, whose prices are not those of its region.

    Its name has more than a letter after the region's (Price List, attribute locationType, 2026).
    """
    found = _AMAZON_REGION.match(zone)
    return found is not None and len(zone) > len(found[0]) + 1


def list_price_names(machine: Machine) -> tuple[str, ...]:
    """Return the names under which refreshed prices of a machine are kept, the exact one first."""
    if isinstance(machine, TpuSlice):
        slices = "single" if machine.hosts == 1 else "pod"
        return (f"tpu-{machine.generation}-{slices}", f"tpu-{machine.generation}")
    return (machine.name,) if machine.is_instance_type else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of the price of a machine in a market.

    Attributes:
        name: Under which refreshed prices are kept.
        low: Refreshed prices below it, or above `high`, are passed over.
        rows: Of the regions that were asked before.
    """

    loaded: Loaded
    machine: Machine
    market: str
    name: str
    low: float
    high: float
    rows: dict[str, tuple[PriceRow, ...]] = field(default_factory=dict[str, tuple[PriceRow, ...]])

    @classmethod
    def load(cls, machine: Machine, market: str, name: str = "") -> _Known:
        """Return what is known; without a name, under the first of the machine's names that has refreshed prices."""
        loaded = load_refreshed(machine.provider) if machine.provider else Loaded()
        name = name or next((one for one in list_price_names(machine) if loaded.list_regions(one, market)), "")
        low, high = 0.0, math.inf
        listed = None
        if loaded.list_regions(name, market):
            listed = _find_listed(machine, "on-demand", "") or _find_listed(machine, market, "")
        if listed is not None:
            low, high = listed.low / _count_units(machine) / _FACTOR, listed.high / _count_units(machine) * _FACTOR
        return cls(loaded=loaded, machine=machine, market=market, name=name, low=low, high=high)

    def list_regions(self) -> list[str]:
        """Return the regions with refreshed prices that are plausible."""
        return [one for one in self.loaded.list_regions(self.name, self.market) if self._is_plausible(one)]

    def find(self, region: str, zone: str) -> Price | None:
        """Return the price in a place; see find_market_price."""
        if region:
            known = region in self.loaded.list_regions(self.name, self.market) and self._is_plausible(region)
            refreshed = self._find_refreshed(region, zone) if known else None
            if _has_own_prices(zone):
                return refreshed if any(row.zone == zone for row in self.rows.get(region, ())) else None
            return refreshed or _find_listed(self.machine, self.market, region)
        places = self.list_regions()
        if inside := [one for one in places if one.startswith("us-")]:
            found = self._find_cheapest(inside)
            others = [one for one in list_sold_regions(self.machine) if one.startswith("us-") and one not in inside]
            listed = [_find_listed(self.machine, self.market, one) for one in others]
            return min((one for one in (found, *listed) if one is not None), key=lambda one: one.middle)
        return _find_listed(self.machine, self.market, "") or self._find_cheapest(places)

    def _is_plausible(self, region: str) -> bool:
        low, high = self.loaded.find_range(self.name, self.market, region)
        return self.low <= low and high <= self.high

    def _find_cheapest(self, regions: Iterable[str]) -> Price | None:
        known = [(self.loaded.find_typical(self.name, self.market, region), region) for region in regions]
        return self._find_refreshed(min(known)[1], "") if known else None

    def _find_refreshed(self, region: str, zone: str) -> Price:
        if region not in self.rows:
            self.rows[region] = self.loaded.list_rows(self.name, self.market, region)
        rows = self.rows[region]
        own = [row for row in rows if zone and row.zone == zone]
        typical = own[0].typical if own else self.loaded.find_typical(self.name, self.market, region)
        return _join_rows(own or rows, self.market, region, typical).times(_count_units(self.machine))


def _count_units(machine: Machine) -> int:
    """Return how many units of a machine have a price: refreshed ones of slices are of a chip."""
    return machine.chips if isinstance(machine, TpuSlice) else 1


def _join_rows(rows: Sequence[PriceRow], market: str, region: str, typical: float) -> Price:
    """Return the price of a place by its rows: those of several zones are joined to their range."""
    where = rows[0].zone if len(rows) == 1 and rows[0].zone else region
    return Price(
        low=min(row.low for row in rows),
        high=max(row.high for row in rows),
        typical=typical,
        note=f"{describe_price(market)}, {where}",
        as_of=max(row.as_of for row in rows),
        source=rows[0].source,
        region=region,
        refreshed=True,
    )


def _find_listed(machine: Machine, market: str, region: str) -> Price | None:
    table = load_table(machine.provider)
    return table.find_price(machine, market, region) if table is not None and market != "block" else None


def list_price_market(market: Market) -> str | None:
    """Return the market as the price tables write it; None for prices by contract."""
    match market:
        case OnDemand():
            return "on-demand"
        case Spot():
            return "spot"
        case FlexStart():
            return "flex-start"
        case Reservation() | CapacityBlock() | Owned():
            return None


def list_region_markets(market: Market) -> tuple[str, ...]:
    """Return the markets by whose prices regions are chosen: for prices by contract those of on demand."""
    word = list_price_market(market)
    return ("flex-start", "on-demand") if word == "flex-start" else (word or "on-demand",)


def describe_price(market: str) -> str:
    """Return what a price of a market is, in words."""
    words = {
        "on-demand": "list price",
        "spot": "spot seen",
        "block": "new block",
        "flex-start": "flex-start list price",
    }
    return words[market]
