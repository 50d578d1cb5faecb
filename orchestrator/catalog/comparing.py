"""Machines beside each other: their prices in a market and a region, for a chip and for what it computes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.catalog.chips import split_count
from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price, find_market_price, list_sold_regions
from orchestrator.catalog.refreshed import MARKETS
from orchestrator.errors import UserError
from orchestrator.messages import join_some, join_words

BY_CONTRACT = "reservation"
"""A market whose prices no table has: they are in a contract of the user's."""
KNOWN_MARKETS = (*MARKETS, BY_CONTRACT)


@dataclass(frozen=True, slots=True)
class Compared:
    """A machine with its prices by market.

    Attributes:
        leading: The market by which it is compared.
    """

    machine: Machine
    prices: Mapping[str, Price | None]
    leading: str

    @property
    def price(self) -> Price | None:
        """Return the price in the leading market."""
        return self.prices[self.leading]

    @property
    def shape(self) -> str:
        """Return its chips as NAME:COUNT; "" without chips."""
        return f"{self.machine.chip}:{self.machine.chips}" if self.machine.chip else ""

    def per_chip(self, price: Price | None) -> float | None:
        """Return dollars of one chip for an hour."""
        return price.middle / self.machine.chips if price is not None and self.machine.chips else None

    def per_pflop(self, price: Price | None) -> float | None:
        """Return dollars of an hour of 1 PFLOP/s: bf16, dense, at the peak. None where the peak is not known."""
        peak = self.machine.peak_bf16_tflops_per_chip / 1000
        chip = self.per_chip(price)
        return chip / peak if chip is not None and peak else None

    @property
    def memory_gib(self) -> float:
        """Return the memory of all chips; of the host without chips."""
        return self.machine.chips * self.machine.hbm_gib_per_chip or self.machine.ram_gib


ORDERS: Mapping[str, Callable[[Compared], float]] = {
    "price": lambda one: one.price.middle if one.price is not None else math.inf,
    "chip": lambda one: _or_last(one.per_chip(one.price)),
    "pflop": lambda one: _or_last(one.per_pflop(one.price)),
    "memory": lambda one: -one.memory_gib,
    "chips": lambda one: -one.machine.chips,
}
"""How machines can be ordered; what is not known comes last."""


def compare(machines: Iterable[Machine], markets: Sequence[str], region: str = "", order: str = "") -> list[Compared]:
    """Return machines with their prices, those with none of a region left out where one is named.

    Args:
        machines: In the order that is kept where nothing else orders them.
        markets: Of KNOWN_MARKETS; the first one leads.
        region: "" for the US list price.
        order: Of ORDERS; "" for the order of the machines.

    Raises:
        UserError: No table knows the region.
    """
    given = list(machines)
    if region:
        _check_region(given, region)
        given = [one for one in given if _is_sold(one, region, markets)]
    found = [
        Compared(one, {market: _find_price(one, market, region) for market in markets}, markets[0]) for one in given
    ]
    return sorted(found, key=ORDERS[order]) if order else found


def choose_by_words(found: Iterable[Machine], words: Sequence[str]) -> list[Machine]:
    """Return the machines that fit one word of each kind: clouds, chips, shapes, machines.

    Raises:
        UserError: A word is none of them.
    """
    machines = list(found)
    kinds: tuple[Callable[[Machine], str], ...] = (
        lambda one: one.provider,
        lambda one: one.chip.lower(),
        lambda one: f"{one.chip}:{one.chips}".lower(),
        lambda one: one.name.lower(),
    )
    given = {word.lower() for word in words}
    known = [{kind(one) for one in machines} for kind in kinds]
    if wrong := sorted(given.difference(*known)):
        clouds = join_words(sorted(known[0] - {""}))
        raise UserError(
            f"`{wrong[0][:60]}` is not a cloud, chip or machine", f"clouds are {clouds}", "orch accelerators"
        )
    clouds_given = given & known[0]
    named = given - clouds_given
    return [
        one
        for one in machines
        if (not clouds_given or one.provider in clouds_given)
        and (not named or any(kind(one) in named for kind in kinds[1:]))
    ]


def find_by_shape(machines: Iterable[Machine], name: str) -> list[Machine]:
    """Return the machines that have a chip, or NAME:COUNT of it; none for another name."""
    split = split_count(name.strip())
    if split is None:
        return []
    chip, count = split
    of_chip = [one for one in machines if one.chip == chip.name]
    return [one for one in of_chip if one.chips == count] if ":" in name else of_chip


def _is_sold(machine: Machine, region: str, markets: Sequence[str]) -> bool:
    """Return whether a region sells a machine; where no places are recorded, whether it has a price there."""
    sold = list_sold_regions(machine)
    return region in sold if sold else any(_find_price(machine, market, region) is not None for market in markets)


def _find_price(machine: Machine, market: str, region: str) -> Price | None:
    return None if market == BY_CONTRACT else find_market_price(machine, market, region)


def _check_region(machines: Sequence[Machine], region: str) -> None:
    known = sorted({one for machine in machines for one in list_sold_regions(machine)})
    if region in known or not known or any(_is_sold(machine, region, MARKETS) for machine in machines):
        return
    from orchestrator.catalog.rented import load_tables

    whole = [machine for table in load_tables() for machine in table.list_machines()]
    refuse_unknown_region(whole, region)
    why = f"they are sold in {join_some(known)}"
    raise UserError(f"none of these machines is known to be sold in `{region}`", why, "orch catalog refresh")


def refuse_unknown_region(machines: Iterable[Machine], region: str) -> None:
    """Raise UserError where none of all machines is known to be sold in a region, with the names that are like it."""
    known = sorted({one for machine in machines for one in list_sold_regions(machine)})
    if region in known:
        return
    from difflib import get_close_matches

    near = get_close_matches(region, known, n=3, cutoff=0.5)
    why = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known[:8])}, ..."
    step = f"--region {near[0]}" if near else "name one of these, or leave --region out"
    raise UserError(f"no such region is known: `{region}`", why, step)


def _or_last(value: float | None) -> float:
    return math.inf if value is None else value
