"""Lines of Google Cloud bills: the standard or detailed usage cost export of BigQuery, as JSON lines. Pure.

Columns: Cloud Billing documentation, "Structure of the standard data export" (read 2026-11-26). BigQuery exports
nested columns to JSON, not to CSV.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from orchestrator.providers.bills import (
    BillLine,
    WrongLineError,
    read_account,
    read_amount,
    read_moment,
    read_token,
    show_value,
)
from orchestrator.providers.google.labels import INTENT, from_google

_NEEDED = frozenset(
    {"billing_account_id", "usage_start_time", "usage_end_time", "cost", "currency", "invoice", "sku", "cost_type"}
)
# Descriptions of SKUs (public catalogue of Cloud Billing, 2026): "Balanced PD Capacity", "External IP Charge on a Spot
# Preemptible VM", "N2 Instance Core running in Americas", "Nvidia L4 GPU running in ...", "TpuV5e ...".
_PARTS = (
    ("disks", re.compile(r"PD Capacity|Hyperdisk|Storage PD|Snapshot", re.IGNORECASE)),
    ("addresses", re.compile(r"\bIP Charge|\bExternal IP\b", re.IGNORECASE)),
    ("network", re.compile(r"Egress|Data Transfer|Network", re.IGNORECASE)),
    ("machines", re.compile(r"\bCore\b|\bRam\b|\bGPU\b|Tpu|\bInstance\b|Local SSD", re.IGNORECASE)),
)
_MONTH = re.compile(r"\d{6}")


def is_export(columns: frozenset[str]) -> bool:
    """Return whether a row with these keys is of a usage cost export."""
    return columns >= _NEEDED


def read_lines(row: Mapping[str, Any]) -> Iterator[BillLine]:
    """Yield the usage of one row, and its credits.

    Raises:
        WrongLineError: A value cannot be read.
    """
    begin = read_moment(row.get("usage_start_time"))
    cost_type = str(row.get("cost_type"))
    usage = BillLine(
        account=read_account(row.get("billing_account_id")),
        month=_read_month(row.get("invoice")),
        token=read_token(from_google(_read_labels(row.get("labels")), INTENT)),
        part="taxes" if cost_type == "tax" else _find_part(row.get("sku")),
        begin=begin,
        until=max(begin, read_moment(row.get("usage_end_time"))),
        amount=read_amount(row.get("cost")),
        currency=str(row.get("currency")),
    )
    yield usage
    for credit in _read_list(row.get("credits")):
        amount = read_amount(credit.get("amount"))
        if amount:
            yield replace(usage, part="credits", amount=amount)


def name_form(row: Mapping[str, Any]) -> str:
    """Return "detailed" for a row with a resource, which the standard export has not.

    Source: Cloud Billing documentation, "Structure of Detailed data export" (2026). BigQuery leaves empty columns out.
    """
    return "detailed" if row.get("resource") else ""


def list_identity(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return all columns: rows of BigQuery are the same in each extract."""
    return sorted((name, str(value)) for name, value in row.items())


def _read_month(invoice: object) -> str:
    text = str(cast("dict[str, object]", invoice).get("month", "")) if isinstance(invoice, dict) else ""
    if not _MONTH.fullmatch(text):
        raise WrongLineError(f"{show_value(text)} is not a month")
    return f"{text[:4]}-{text[4:]}"


def _read_labels(value: object) -> dict[str, str]:
    return {str(one.get("key")): str(one.get("value")) for one in _read_list(value)}


def _read_list(value: object) -> list[dict[str, object]]:
    """Return a repeated column; none where it is absent."""
    if not isinstance(value, list):
        return []
    found = cast("list[object]", value)
    return [cast("dict[str, object]", one) for one in found if isinstance(one, dict)]


def _find_part(sku: object) -> str:
    text = str(cast("dict[str, object]", sku).get("description", "")) if isinstance(sku, dict) else ""
    return next((part for part, known in _PARTS if known.search(text)), "other")
