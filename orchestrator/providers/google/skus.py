"""SKUs of the Cloud Billing Catalog: which of them makes the price of which machine. Pure; the mapping is skus.toml.

Fields of a SKU: Cloud Billing API v1, discovery document of googleapiclient 2.202 (November 2026).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from typing import Any, cast

from orchestrator.catalog.machines import ComputeType

CURRENCY = "USD"
MARKETS: Mapping[str, str] = {"on-demand": "OnDemand", "spot": "Preemptible", "flex-start": "OnDemand"}
"""Our markets with the usage type of their SKUs; every other type is a commitment."""
_HOURS = {"h": Decimal(1), "GiBy.h": Decimal(1), "GiBy.mo": Decimal(730)}  # hours of a month as Google's pages count
_NANO = Decimal(10) ** -9
_OLD_SPOT = ("tpu-v2", "tpu-v3", "tpu-v4")  # "usageType of preemptible TPUs are OnDemand" (SkyPilot, fetch_gcp.py)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one part of one machine is written in one market; `unit` counts `per` of it."""

    key: tuple[str, str]
    market: str
    pattern: re.Pattern[str]
    unit: str
    per: int
    usages: frozenset[str]


@dataclass(slots=True)
class SkuPrices:
    """Prices of parts by (name, part), market and region: the highest where several SKUs fit."""

    parts: dict[tuple[tuple[str, str], str], dict[str, Decimal]] = field(
        default_factory=dict[tuple[tuple[str, str], str], dict[str, Decimal]]
    )

    def add(self, skus: Iterable[Mapping[str, Any]]) -> None:
        """Take in a page; a SKU of an unknown kind is passed over."""
        for sku in skus:
            for rule, usd in _read(sku):
                known = self.parts.setdefault((rule.key, rule.market), {})
                for region in sku.get("serviceRegions", ()):
                    known[str(region)] = max(usd, known.get(str(region), Decimal(0)))

    def price_chips(self, market: str) -> Iterator[tuple[str, str, float]]:
        """Yield the prices of TPU chips: the name of the generation, region, dollars an hour."""
        for (name, part), word in self.parts:
            if part == "chip" and word == market:
                for region, usd in self.parts[(name, part), word].items():
                    yield name, region, float(usd)

    def price_type(self, machine: ComputeType, market: str) -> dict[str, float]:
        """Return the price of a machine type by region: where each of its parts has one."""
        family = next((row for row in load_table()["family"] if machine.name.startswith(row["prefix"])), None)
        if family is None:
            return {}
        amounts = {
            ("vcpu", family["series"]): Decimal(machine.vcpus),
            ("gib", family["series"]): Decimal(str(machine.ram_gib)),
            ("gpu", family["gpu"]): Decimal(machine.chips if family["gpu"] else 0),
            ("disk", ""): Decimal(machine.chips * family["disk_gib"]),
        }
        needed = {key: amount for key, amount in amounts.items() if amount}
        known = [self.parts.get(((name, part), market), {}) for part, name in needed]
        regions = set(known[0]).intersection(*known[1:])
        return {
            region: float(sum(amount * prices[region] for amount, prices in zip(needed.values(), known, strict=True)))
            for region in sorted(regions)
        }


def read_amount(price: Mapping[str, Any]) -> Decimal | None:
    """Return an amount of Money: whole units and billionths, added exactly; None in another currency."""
    if price.get("currencyCode") != CURRENCY:
        return None
    try:
        return Decimal(str(price.get("units", 0))) + Decimal(str(price.get("nanos", 0))) * _NANO
    except InvalidOperation:
        return None


def list_services() -> tuple[str, ...]:
    """Return the services whose SKUs are read."""
    return tuple(f"services/{row['id']}" for row in load_table()["service"])


@cache
def load_table() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the mapping by their kind."""
    return tomllib.loads(files(__package__ or "").joinpath("skus.toml").read_text(encoding="utf-8"))


def _read(sku: Mapping[str, Any]) -> Iterator[tuple[_Rule, Decimal]]:
    """Yield the rules that a SKU fits, with the price an hour of one of what it measures."""
    description, category = str(sku.get("description", "")), cast(Mapping[str, Any], sku.get("category", {}))
    timeline = cast(Sequence[Mapping[str, Any]], sku.get("pricingInfo") or ({},))
    newest = timeline[-1]  # of a chronological order
    expression = cast(Mapping[str, Any], newest.get("pricingExpression", {}))
    rates = cast(Sequence[Mapping[str, Any]], expression.get("tieredRates", ()))
    if len(rates) != 1 or "custom" in description.lower():
        return
    usd = read_amount(rates[0].get("unitPrice", {}))
    if usd is None or usd <= 0:
        return
    for rule in _list_rules():
        if (
            category.get("usageType") in rule.usages
            and expression.get("usageUnit") == rule.unit
            and rule.pattern.match(description)
        ):
            yield rule, usd / rule.per / _HOURS[rule.unit]


@cache
def _list_rules() -> tuple[_Rule, ...]:
    table = load_table()
    rules = [
        _make_rule((row["name"], "chip"), market, row[market], "h", row["chips"])
        for row in table["tpu"]
        for market in MARKETS
        if market in row
    ]
    names = {"gpu": {row["gpu"] for row in table["family"] if row["gpu"]}, "disk": {""}}
    series = {row["series"] for row in table["family"]}
    for row in table["part"]:
        for name in sorted(names.get(row["part"], series)):
            words = {"series": name, "gpu": re.escape(name)}
            rules += [
                _make_rule((name, row["part"]), market, row[market].format(**words), row["unit"], 1)
                for market in MARKETS
                if market in row
            ]
    return tuple(rules)


def _make_rule(key: tuple[str, str], market: str, pattern: str, unit: str, per: int) -> _Rule:
    usages = {MARKETS[market]}
    if market == "spot" and key[0].startswith(_OLD_SPOT):
        usages.add("OnDemand")
    return _Rule(key, market, re.compile(pattern), unit, per, frozenset(usages))
