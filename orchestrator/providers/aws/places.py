"""The places of EC2 that have a machine, the cheapest first. Pure, and light: offers ask it for every type."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.ec2 import priced_regions
from orchestrator.catalog.ec2_regions import list_opt_in_regions, load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance, Machine
from orchestrator.catalog.prices import list_refreshed_zones
from orchestrator.providers.places import order_by_price
from orchestrator.providers.protocol import Place
from orchestrator.slices import Market

FIRST_REGIONS = 3  # of those that have a type whose price is known nowhere


def list_machine_places(machine: Machine, named: Place, market: Market, images: Sequence[str] = ()) -> list[Place]:
    """Return one place per zone.

    Without a named region only regions with a known price are used, the cheapest first, and of them those that every
    account may use.

    Args:
        machine: What is rented.
        named: The region and the zone that were named.
        market: How it is rented.
        images: Regions for which an image was named.
    """
    if not isinstance(machine, Ec2Instance) or named.zone:
        return [named]
    priced = priced_regions(machine, market)
    sold = list_refreshed_zones(machine)
    offered = dict.fromkeys((*machine.regions, *(zone[:-1] for zone in sold)))
    there = sorted(offered, key=lambda region: region in list_opt_in_regions())
    usable = [region for region in there if region in priced]
    open_to_all = [region for region in usable if region not in list_opt_in_regions()]
    known = open_to_all or usable or there[:FIRST_REGIONS]
    found = [named.region] if named.region else (images or known or ["us-east-1"])
    places = [Place(region, zone) for region in found for zone in _list_zones(region, sold)]
    return order_by_price(places, machine, market)


def _list_zones(region: str, sold: Sequence[str]) -> Sequence[str]:
    """Return the zones of a region to ask: those that sell the machine where EC2 reported them, else all."""
    usual = ("a", "b", "c")  # of a region that is newer than the table
    inside = [zone for zone in sold if zone[:-1] == region]
    return inside or load_zones_by_region().get(region, tuple(f"{region}{letter}" for letter in usual))
