"""Prices that are unlike those of their neighbours, and so have to be checked before anything is rented. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price
from orchestrator.formatting import format_amount

# Between a price of a chip and the middle one of other machines with it in the same market. Of the list prices only
# that of g4dn.16xlarge, 64 vCPUs for one T4, differs by more than four; a price of eight chips read as that of one, by
# eight.
_FACTOR = 5.0
_FEWEST = 2  # neighbours that say something
_LEAST_OF_LIST = 0.05  # of its list price: spot prices that were seen are from 10 % of it up


def find_price_doubts(
    machines: Sequence[Machine], prices: Mapping[tuple[str, str], Price]
) -> dict[tuple[str, str], str]:
    """Return why a price has to be checked, by machine and market.

    Args:
        machines: Each once.
        prices: Of one machine, by its name and market, "on-demand" or "spot".
    """
    found: dict[tuple[str, str], str] = {}
    by_kind: dict[tuple[str, str], dict[str, float]] = {}
    chips = {one.name: one for one in machines}
    for (name, market), price in prices.items():
        by_kind.setdefault((chips[name].chip, market), {})[name] = price.middle / chips[name].chips
    for (name, market), price in prices.items():
        own = by_kind[chips[name].chip, market]
        others = [value for other, value in own.items() if other != name]
        listed = prices.get((name, "on-demand"))
        unlike = ""
        if len(others) >= _FEWEST and not 1 / _FACTOR <= own[name] / median(others) <= _FACTOR:
            unlike = f"other {chips[name].chip} cost about {format_amount(median(others))}"
        elif market == "spot" and listed is not None and not _LEAST_OF_LIST <= price.middle / listed.middle <= 1:
            unlike = f"the list price is {format_amount(listed.middle / chips[name].chips)}"
        if unlike:
            source = f" ({price.source})" if price.source else ""
            found[name, market] = f"{format_amount(own[name])} a chip and hour, {market}, where {unlike}{source}"
    return found
