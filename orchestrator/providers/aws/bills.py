"""Lines of AWS bills: CUR 2.0 of Data Exports, and the older Cost and Usage Report, as CSV. Pure.

Columns: Data Exports user guide, "Cost and Usage Report (CUR) 2.0" and "Line item columns" (read 2026-11-26). A tag is
in them only once it is a cost allocation tag. CUR 2.0 has the map `resource_tags` with keys such as user_orch_intent;
the map `tags` has resourceTags/orch-intent; the older report has the column resourceTags/user:orch-intent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from time import gmtime, strftime
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

_NEEDED = frozenset(
    {
        "bill_payer_account_id", "bill_billing_period_start_date", "line_item_usage_start_date",
        "line_item_usage_end_date", "line_item_line_item_type", "line_item_usage_type", "line_item_unblended_cost",
        "line_item_currency_code",
    }
)  # fmt: skip
# What differs between deliveries: each has other ids, and invoices and discounts are known later ("Identity columns"
# and "Bill columns", 2026).
_OF_DELIVERY = re.compile(r"identity_line_item_id|bill_invoic\w*|bill_bill_type|\w*(cost|price|rate|discount)\w*")
_TAG = re.compile(r"(resource_?tags_)?(user_)?orch_intent")
# Usage types: "us-east-1 BoxUsage:p5.48xlarge", "EBS:VolumeUsage.gp3", "USE1-PublicIPv4:InUseAddress" (2026).
_PARTS = (
    ("disks", re.compile(r"EBS:")),
    ("addresses", re.compile(r"PublicIPv4:|ElasticIP:")),
    ("machines", re.compile(r"BoxUsage|SpotUsage|DedicatedUsage|HostUsage|Reservation|UnusedBox|UnusedDed")),
    ("network", re.compile(r"DataTransfer|-Bytes")),
)
# Line item types: "Line item columns" (2026). All others are usage.
_KINDS = (
    ("taxes", re.compile(r"Tax")),
    ("credits", re.compile(r"Credit|Refund|\w*Discount|SavingsPlanNegation")),
    ("fees", re.compile(r"Fee|RIFee|SavingsPlan\w*Fee")),
)


def is_export(columns: frozenset[str]) -> bool:
    """Return whether a file with these columns is a Cost and Usage Report."""
    return {_plain(name) for name in columns} >= _NEEDED


def read_lines(row: Mapping[str, Any]) -> Iterator[BillLine]:
    """Yield what one row says.

    Raises:
        WrongLineError: A value cannot be read.
    """
    plain = {_plain(name): value for name, value in row.items()}
    begin = read_moment(plain["line_item_usage_start_date"])
    yield BillLine(
        account=read_account(plain["bill_payer_account_id"]),
        month=_read_month(plain["bill_billing_period_start_date"]),
        token=read_token(_find_tag(plain)),
        part=_find_part(str(plain["line_item_line_item_type"]), str(plain["line_item_usage_type"])),
        begin=begin,
        until=max(begin, read_moment(plain["line_item_usage_end_date"])),
        amount=read_amount(plain["line_item_unblended_cost"]),
        currency=str(plain["line_item_currency_code"]),
    )


def name_form(row: Mapping[str, Any]) -> str:
    """Return the columns: CUR 2.0 and the older report have others, and the files of one report have the same."""
    return ",".join(sorted(map(str, row)))


def list_identity(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the columns that are the same for a row in each delivery of a report."""
    return sorted((name, str(value)) for name, value in row.items() if not _OF_DELIVERY.fullmatch(_plain(name)))


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """Return a column as CUR 2.0 writes it: lineItem/UnblendedCost is line_item_unblended_cost."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def _read_month(value: object) -> str:
    return strftime("%Y-%m", gmtime(read_moment(value)))


def _find_tag(row: Mapping[str, Any]) -> str:
    for name in ("resource_tags", "tags"):
        text = str(row.get(name) or "")
        if "orch" in text:  # most lines have other tags, or none
            for key, value in _read_map(text).items():
                if _TAG.fullmatch(_plain(key)):
                    return str(value)
    return next((str(value or "") for key, value in row.items() if _TAG.fullmatch(key)), "")


def _read_map(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongLineError(f"{show_value(text)} is not a map of tags") from None
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _find_part(line_type: str, usage_type: str) -> str:
    kind = next((part for part, known in _KINDS if known.fullmatch(line_type)), "")
    return kind or next((part for part, known in _PARTS if known.search(usage_type)), "other")
