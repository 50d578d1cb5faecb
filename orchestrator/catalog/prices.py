"""Dated list prices, for the price line of a plan. None means unknown, and is never shown as 0."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts, TpuSlice
from orchestrator.catalog.tables import Row, rows
from orchestrator.slices import Market, OnDemand, Owned, Spot


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour for one slice or instance. low and high differ where only a range is known.

    note: region, kind and source in words. as_of: ISO date the source was read or published.
    """

    low: float
    high: float
    note: str
    as_of: str

    @property
    def is_range(self) -> bool:
        return self.low != self.high

    def times(self, count: int) -> Price:
        return Price(self.low * count, self.high * count, self.note, self.as_of)

    def __str__(self) -> str:
        amount = f"${self.low:,.2f} to ${self.high:,.2f}" if self.is_range else f"${self.low:,.2f}"
        return f"{amount} an hour ({self.note}, {self.as_of})" if self.as_of else f"{amount} an hour ({self.note})"


def price_per_hour(accelerator: Accelerator, market: Market, region: str = "") -> Price | None:
    """Price of one `accelerator`; None when not known for this market and region. region "": the US list price.

    Reservations and Capacity Blocks have contract prices that no table holds: None.
    """
    if isinstance(accelerator, LocalHosts):
        return Price(0.0, 0.0, "your own computer", "")
    if isinstance(market, Owned):
        return Price(0.0, 0.0, "your own machines, nothing is rented", "")
    word = _MARKETS.get(type(market))
    if word is None:
        return None
    if isinstance(accelerator, TpuSlice):
        return _tpu_price(accelerator, word, region)
    if isinstance(accelerator, Ec2Instance):
        return _ec2_price(accelerator, word, region)
    return None


def priced_regions(instance: Ec2Instance, market: Market) -> frozenset[str]:
    """Regions of which a price is known; for a contract's price those of on demand."""
    word = _MARKETS.get(type(market), "on-demand")
    fitting = [row for row in rows("ec2_prices", "price") if row.text("instance") == instance.name]
    return frozenset(region for row in fitting if row.text("market") == word for region in row.texts("regions"))


def price_line(accelerator: Accelerator, market: Market, count: int = 1, region: str = "") -> str:
    """One line for people: what, how many, how, and what it costs as far as is known."""
    what = f"{count} x {accelerator.name}" if count != 1 else accelerator.name
    price = price_per_hour(accelerator, market, region)
    return f"{what}, {market}: {price.times(count) if price else 'price not known'}"


_MARKETS: dict[type[Market], str] = {OnDemand: "on-demand", Spot: "spot"}


def _tpu_price(slice_: TpuSlice, market: str, region: str) -> Price | None:
    kinds = ("any", "single" if slice_.hosts == 1 else "pod")
    fitting = [
        row
        for row in rows("tpu_prices", "price")
        if row.text("generation") == slice_.generation and row.text("market") == market and row.text("slices") in kinds
    ]
    chosen = _in_region(fitting, region)
    if not chosen:
        return None
    dollars = [row.number("usd") * slice_.chips for row in chosen]
    where = region or " or ".join(sorted({row.text("region") for row in chosen}))
    return Price(min(dollars), max(dollars), f"{_kind(market)}, {where}", max(row.text("as_of") for row in chosen))


def _in_region(fitting: list[Row], region: str) -> list[Row]:
    """The region's own row; else the one for all of the US; without a region all US rows if there is no such row."""
    general = [row for row in fitting if row.text("region") == "us"]
    if not region:
        return general or [row for row in fitting if row.text("region").startswith("us-")]
    own = [row for row in fitting if row.text("region") == region]
    return own or (general if region.startswith("us-") else [])


def _ec2_price(instance: Ec2Instance, market: str, region: str) -> Price | None:
    for row in rows("ec2_prices", "price"):
        if row.text("instance") != instance.name or row.text("market") != market:
            continue
        if region and region not in row.texts("regions"):
            return None
        where = region or " or ".join(row.texts("regions"))
        return Price(row.number("usd"), row.number("usd_high"), f"{_kind(market)}, {where}", row.text("as_of"))
    return None


def _kind(market: str) -> str:
    return "list price" if market == "on-demand" else "spot seen"
