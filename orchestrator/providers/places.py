"""The order in which the places of a machine are tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price, has_zone_prices, list_prices, price_per_hour
from orchestrator.drivers import has_part, load_part
from orchestrator.providers.protocol import Place
from orchestrator.slices import Market


def order_by_price(places: Iterable[Place], machine: Machine, market: Market) -> list[Place]:
    """Return places, the cheapest first; those without a known price last, in their order."""
    several = tuple(places)
    differ = has_zone_prices(machine)
    keys = [(place.region, place.zone if differ else "") for place in several]
    unlike = tuple(dict.fromkeys(keys))
    prices = dict(zip(unlike, list_prices(machine, market, unlike), strict=True))
    dollars = [math.inf if (price := prices[key]) is None else price.high for key in keys]
    return [several[number] for number in sorted(range(len(several)), key=dollars.__getitem__)]


class ListsPlaces(Protocol):
    """A driver's module `places`."""

    def list_machine_places(self, machine: Machine, named: Place, market: Market) -> Sequence[Place]:
        """Return the places that have a machine, the cheapest first."""
        ...


@dataclass(frozen=True, slots=True)
class PricedPlace:
    """A place, and the price of one machine there."""

    place: Place
    price: Price


def find_cheapest_place(machine: Machine, market: Market, region: str = "", zone: str = "") -> PricedPlace | None:
    """Return the place where a launch without other options would ask first, with the price of one machine there.

    A driver without the module `places` has one price for each region that is named. None where no price is known.
    """
    places: Sequence[Place] = [Place(region, zone)]
    if has_part(machine.provider, "places"):
        module = cast(ListsPlaces, load_part(machine.provider, "places"))
        places = module.list_machine_places(machine, places[0], market)
    for place in places:
        if (price := price_per_hour(machine, market, place.region, place.zone)) is not None:
            return PricedPlace(place, price)
    return None


def find_first_price(machine: Machine, market: Market, places: Iterable[Place]) -> Price | None:
    """Return the price in the first place where it is known; None where it is known in none."""
    prices = (price_per_hour(machine, market, place.region, place.zone) for place in places)
    return next((one for one in prices if one is not None), None)
