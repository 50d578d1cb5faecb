"""Dated list prices, for the price line of a plan. None means unknown, and is never shown as 0."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts, TpuSlice
from orchestrator.catalog.tables import Row, read_rows
from orchestrator.slices import CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price in US dollars an hour for one slice or instance; low and high differ where only a range is known.

    Attributes:
        note: Region, kind and source.
        as_of: ISO date on which the source was read or published.
    """

    low: float
    high: float
    note: str
    as_of: str

    @property
    def is_range(self) -> bool:
        return self.low != self.high

    def times(self, count: int) -> Price:
        return Price(low=self.low * count, high=self.high * count, note=self.note, as_of=self.as_of)

    def __str__(self) -> str:
        amount = f"${self.low:,.2f} to ${self.high:,.2f}" if self.is_range else f"${self.low:,.2f}"
        return f"{amount} an hour ({self.note}, {self.as_of})" if self.as_of else f"{amount} an hour ({self.note})"


def price_per_hour(accelerator: Accelerator, market: Market, region: str = "") -> Price | None:
    """Return the price of one `accelerator`; None when it is not known for this market and region.

    Reservations and Capacity Blocks have contract prices, which no table holds. Without a region: the US list price.
    """
    if isinstance(accelerator, LocalHosts):
        return Price(low=0.0, high=0.0, note="your own computer", as_of="")
    if isinstance(market, Owned):
        return Price(low=0.0, high=0.0, note="your own machines, nothing is rented", as_of="")
    word = _list_price_market(market)
    if word is None:
        return None
    if isinstance(accelerator, TpuSlice):
        return _tpu_price(accelerator, word, region)
    if isinstance(accelerator, Ec2Instance):
        return _ec2_price(accelerator, word, region)
    return None


def priced_regions(instance: Ec2Instance, market: Market) -> frozenset[str]:
    """Return the regions with a known price; for a contract market those of on demand."""
    word = _list_price_market(market) or "on-demand"
    fitting = [row for row in read_rows("ec2_prices", "price") if row.text("instance") == instance.name]
    return frozenset(region for row in fitting if row.text("market") == word for region in row.texts("regions"))


def price_line(accelerator: Accelerator, market: Market, count: int = 1, region: str = "") -> str:
    """Format one line: machine, count, market, and its price as far as it is known."""
    what = f"{count} x {accelerator.name}" if count != 1 else accelerator.name
    price = price_per_hour(accelerator, market, region)
    return f"{what}, {market}: {price.times(count) if price else 'price not known'}"


def _list_price_market(market: Market) -> str | None:
    """Return the market as the price tables write it; None for prices by contract."""
    match market:
        case OnDemand():
            return "on-demand"
        case Spot():
            return "spot"
        case Reservation() | CapacityBlock() | FlexStart() | Owned():
            return None


def _tpu_price(slice_: TpuSlice, market: str, region: str) -> Price | None:
    kinds = ("any", "single" if slice_.hosts == 1 else "pod")
    fitting = [
        row
        for row in read_rows("tpu_prices", "price")
        if row.text("generation") == slice_.generation and row.text("market") == market and row.text("slices") in kinds
    ]
    chosen = _in_region(fitting, region)
    if not chosen:
        return None
    dollars = [row.number("usd") * slice_.chips for row in chosen]
    where = region or " or ".join(sorted({row.text("region") for row in chosen}))
    return Price(
        low=min(dollars),
        high=max(dollars),
        note=f"{_kind(market)}, {where}",
        as_of=max(row.text("as_of") for row in chosen),
    )


def _in_region(fitting: list[Row], region: str) -> list[Row]:
    """Return the region's own row, else the one for all of the US; without a region all US rows."""
    general = [row for row in fitting if row.text("region") == "us"]
    if not region:
        return general or [row for row in fitting if row.text("region").startswith("us-")]
    own = [row for row in fitting if row.text("region") == region]
    return own or (general if region.startswith("us-") else [])


def _ec2_price(instance: Ec2Instance, market: str, region: str) -> Price | None:
    for row in read_rows("ec2_prices", "price"):
        if row.text("instance") != instance.name or row.text("market") != market:
            continue
        if region and region not in row.texts("regions"):
            return None
        where = region or " or ".join(row.texts("regions"))
        return Price(
            low=row.number("usd"),
            high=row.number("usd_high"),
            note=f"{_kind(market)}, {where}",
            as_of=row.text("as_of"),
        )
    return None


def _kind(market: str) -> str:
    return "list price" if market == "on-demand" else "spot seen"
