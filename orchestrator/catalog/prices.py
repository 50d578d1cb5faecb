"""Dated list prices, for the price line of a plan. None means unknown, and is never shown as 0."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.machines import LocalHosts, Machine
from orchestrator.catalog.rented import load_table
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


def price_per_hour(accelerator: Machine, market: Market, region: str = "") -> Price | None:
    """Return the price of one `accelerator`; None when it is not known for this market and region.

    Reservations and Capacity Blocks have contract prices, which no table holds. Without a region: the US list price.
    """
    if isinstance(accelerator, LocalHosts):
        return Price(low=0.0, high=0.0, note="your own computer", as_of="")
    if isinstance(market, Owned):
        return Price(low=0.0, high=0.0, note="your own machines, nothing is rented", as_of="")
    word = list_price_market(market)
    if word is None:
        return None
    table = load_table(accelerator.provider)
    return table.find_price(accelerator, word, region) if table is not None else None


def price_line(accelerator: Machine, market: Market, count: int = 1, region: str = "") -> str:
    """Format one line: machine, count, market, and its price as far as it is known."""
    what = f"{count} x {accelerator.name}" if count != 1 else accelerator.name
    price = price_per_hour(accelerator, market, region)
    return f"{what}, {market}: {price.times(count) if price else 'price not known'}"


def list_price_market(market: Market) -> str | None:
    """Return the market as the price tables write it; None for prices by contract."""
    match market:
        case OnDemand():
            return "on-demand"
        case Spot():
            return "spot"
        case Reservation() | CapacityBlock() | FlexStart() | Owned():
            return None


def describe_price(market: str) -> str:
    """Return what a price of a market is, in words."""
    return "list price" if market == "on-demand" else "spot seen"
