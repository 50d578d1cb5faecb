"""The zones of Google Cloud that have a machine, the cheapest first. Pure, and light: offers ask it for every type."""

from __future__ import annotations

from orchestrator.catalog.compute import priced_regions
from orchestrator.catalog.machines import ComputeType, Machine, TpuSlice
from orchestrator.catalog.prices import list_refreshed_zones
from orchestrator.providers.places import order_by_price
from orchestrator.providers.protocol import Place
from orchestrator.slices import Market

FIRST_ZONES = 6  # of those that have a type whose price is known nowhere


def list_machine_places(machine: Machine, named: Place, market: Market) -> list[Place]:
    """Return one place per zone that is known to have the machine.

    A machine without TPUs is looked for only where its price is known, unless a region is named: it may be in any.
    """
    if named.zone or not isinstance(machine, TpuSlice | ComputeType):
        return [named]
    sold = dict.fromkeys((*machine.zones, *list_refreshed_zones(machine)))
    zones = [Place(zone.rpartition("-")[0], zone) for zone in sold]
    fitting = [place for place in zones if named.region in ("", place.region)]
    if isinstance(machine, ComputeType) and not named.region:
        priced = priced_regions(machine, market)
        fitting = [place for place in fitting if place.region in priced] or fitting[:FIRST_ZONES]
    return order_by_price(fitting, machine, market) or [Place(named.region)]
