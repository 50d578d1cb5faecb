"""Products of the AWS Price List: which are asked for, and what one costs. Pure; the filters are price_list.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from typing import Any, cast

CURRENCY = "USD"
_UNIT = "Hrs"


def list_filters(name: str) -> list[dict[str, str]]:
    """Return the filters of GetProducts for one instance type."""
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in _attributes(name).items()]


def read_product(text: str, name: str) -> tuple[str, float] | None:
    """Return the region and the price an hour of one product, which comes as JSON in a string.

    None for a product that is another one, is priced in another currency or by another unit, or costs nothing: prices
    of commitments are in `terms.Reserved`, which is not read.
    """
    try:
        product = cast(dict[str, Any], json.loads(text))
        attributes = cast(Mapping[str, str], product["product"]["attributes"])
        if any(attributes.get(field) != value for field, value in _attributes(name).items()):
            return None
        prices = [
            Decimal(dimension["pricePerUnit"][CURRENCY])
            for term in product["terms"]["OnDemand"].values()
            for dimension in term["priceDimensions"].values()
            if dimension["unit"] == _UNIT
        ]
        region = str(attributes["regionCode"])
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation):
        return None  # of a form that no documentation has
    usd = float(max(prices, default=Decimal(0)))
    return (region, usd) if usd > 0 else None


def _attributes(name: str) -> Mapping[str, str]:
    table = _load()
    tenancy = next(str(row["value"]) for row in table["tenancy"] if name.endswith(row["suffix"]))
    return {
        "instanceType": name,
        "tenancy": tenancy,
        **{str(row["field"]): str(row["value"]) for row in table["filter"]},
    }


@cache
def _load() -> dict[str, list[dict[str, Any]]]:
    text = files(__package__ or "").joinpath("price_list.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
