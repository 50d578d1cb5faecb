"""DescribeSpotPriceHistory: the changes of spot prices in the zones of a region, the newest first, page by page.

Source: EC2 API reference: changes within the range, and the last one before its start, which is the price in effect
then; up to 90 days. The prices are modelled: a share of the list price that changes three times a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from orch_fronts.aws.ec2.filters import chosen, page
from orch_fronts.aws.ec2.kinds import zones_offering
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import wrong_value
from orch_fronts.aws.tables import instance_types, list_price

DAY = 86_400.0
_LASTS = 8 * 3600.0  # seconds between two changes
_LONGEST = 90 * DAY
_SYSTEM = "Linux/UNIX"
_FILTERS = frozenset({"instance-type", "availability-zone", "product-description", "spot-price", "timestamp"})


def history(visit: Visit) -> dict[str, Any]:
    visit.ask()
    now = visit.now
    start, end = float(visit.params.get("StartTime", now - _LASTS)), float(visit.params.get("EndTime", now))
    if start > end:
        raise wrong_value("The start time is after the end time")
    systems = visit.params.get("ProductDescriptions") or [_SYSTEM]
    names = visit.params.get("InstanceTypes") or list(instance_types())
    zone = visit.params.get("AvailabilityZone", "")
    found = [
        change
        for name in names
        if _SYSTEM in systems and name in instance_types() and "spot" in instance_types()[name].usage
        for where in zones_offering(visit, name)
        if zone in ("", where)
        for change in _changes(name, where, max(start, now - _LONGEST), min(end, now))
    ]
    found.sort(key=lambda one: -one["Timestamp"])
    shown, more = page(visit, chosen(visit, found, _facts, _FILTERS))
    return {"SpotPriceHistory": shown, **more}


def price_at(name: str, zone: str, at: float) -> float:
    """Return the price that holds at a time."""
    digest = hashlib.sha256(f"{name} {zone} {at // _LASTS:.0f}".encode()).digest()
    return float(list_price(name, zone[:-1]) or 0) * (0.3 + 0.3 * digest[0] / 255)


def _changes(name: str, zone: str, start: float, end: float) -> Iterator[dict[str, Any]]:
    at = start // _LASTS * _LASTS  # the last one before the start
    while at <= end:
        if usd := price_at(name, zone, at):
            yield {
                "InstanceType": name,
                "AvailabilityZone": zone,
                "ProductDescription": _SYSTEM,
                "SpotPrice": f"{usd:.6f}",
                "Timestamp": at,
            }
        at += _LASTS


def _facts(one: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "instance-type": [one["InstanceType"]],
        "availability-zone": [one["AvailabilityZone"]],
        "product-description": [one["ProductDescription"]],
        "spot-price": [one["SpotPrice"]],
        "timestamp": [],
    }
