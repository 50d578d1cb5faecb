"""The Cloud Billing Catalog: skus.list, page by page, from data/skus.toml.

Source: Cloud Billing API v1 (discovery document of googleapiclient 2.202): pageSize 5000 by default, prices in the
currency that is asked for, whole units as text beside billionths. Descriptions and prices with a SKU id are recordings
(see the table); the simulated conversion of other currencies is modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from orch_fronts.google.methods import called
from orch_fronts.google.status import INVALID_ARGUMENT, NOT_FOUND, Refusal
from orch_fronts.tables import read_table

_FILE = "google/data/skus.toml"
_MOST = 5000
_RATES: Mapping[str, float] = {"USD": 1.0, "EUR": 0.9}


class BillingFront:
    """page: SKUs of an answer, at most 5000. currency: in which it answers, whatever is asked; "" for as asked."""

    def __init__(self, page: int = _MOST, currency: str = "") -> None:
        self.page = page
        self.currency = currency

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        del body
        call = called(method, target)
        service = f"services/{call.path_values[0]}"
        if service not in _services():
            raise Refusal(NOT_FOUND, f"Service {service} was not found.")
        query = {name: values[-1] for name, values in call.query.items()}
        currency = self.currency or query.get("currencyCode", "USD") or "USD"
        if currency not in _RATES:
            raise Refusal(INVALID_ARGUMENT, f"Invalid currency code: {currency}.")
        size, token = int(query.get("pageSize") or _MOST), query.get("pageToken") or "0"
        if not 0 < size <= _MOST or not token.isdecimal():
            raise Refusal(INVALID_ARGUMENT, "Request contains an invalid argument.")
        start, end = int(token), int(token) + min(size, self.page)
        found = [_shown(one, currency) for one in list_skus() if one["name"].startswith(f"{service}/")]
        return {"skus": found[start:end], "nextPageToken": str(end) if end < len(found) else ""}


@cache
def list_skus() -> tuple[dict[str, Any], ...]:
    """Return the SKUs of the table, each with its price in US dollars as `usd`."""
    return tuple(one for row in read_table(_FILE)["sku"] for one in _expand(row))


def _services() -> frozenset[str]:
    return frozenset(f"services/{row['service']}" for row in read_table(_FILE)["sku"])


def _expand(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a SKU for each place of a row: `{place}` of its description, with the regions there."""
    for place, regions in row.get("places", {"": row.get("regions", [])}).items():
        description = row["description"].replace("{place}", place)
        number = f"{sum(map(ord, description)) % 65_536:04X}"
        sku = row.get("id", f"0000-{number}-{len(description):04X}")
        yield {
            "name": f"services/{row['service']}/skus/{sku}",
            "skuId": sku,
            "description": description,
            "category": {
                "serviceDisplayName": "Compute Engine" if row["service"].startswith("6F81") else "Cloud TPU",
                "resourceFamily": row.get("family", "Compute"),
                "resourceGroup": row["group"],
                "usageType": row["usage"],
            },
            "serviceRegions": list(regions),
            "unit": row.get("unit", "h"),
            "usd": row["usd"],
        }


def _shown(one: Mapping[str, Any], currency: str) -> dict[str, Any]:
    whole, _, part = str(one["usd"]).partition(".")
    nanos = int(part.ljust(9, "0")[:9])
    if currency != "USD":
        total = round((int(whole) * 10**9 + nanos) * _RATES[currency])
        whole, nanos = str(total // 10**9), total % 10**9
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": currency, "units": whole, "nanos": nanos}}
    expression = {"usageUnit": one["unit"], "displayQuantity": 1, "tieredRates": [rate]}
    info = {
        "summary": "",
        "pricingExpression": expression,
        "currencyConversionRate": _RATES[currency],
        "effectiveTime": "2026-11-26T06:00:00.000000Z",
    }
    plain = {key: value for key, value in one.items() if key not in ("unit", "usd")}
    return {**plain, "pricingInfo": [info], "serviceProviderName": "Google"}
