"""The lines of a cloud's bill: what a driver's module `bills` reads from an export, and how values are read. Pure.

An export is a file of others: every value in it is checked, and none is carried out or shown without limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Protocol, cast

from orchestrator.drivers import has_part, list_driver_names, load_part

_ACCOUNT = re.compile(r"[A-Za-z0-9-]{1,40}")
_MOST_DOLLARS = Decimal(10) ** 9  # of one line
_LONGEST_TOKEN = 200


class WrongLineError(ValueError):
    """A line of a bill that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of a bill.

    Attributes:
        account: Who pays it.
        month: Of the bill, such as 2026-11.
        token: Of the slice, from our label; "" for what has none.
        part: One of charges.BILLED_PARTS.
        begin: Epoch seconds; likewise `until`.
        amount: In the currency of the bill.
        currency: Such as USD.
    """

    account: str
    month: str
    token: str
    part: str
    begin: float
    until: float
    amount: Decimal
    currency: str


class BillReader(Protocol):
    """A driver's module `bills`."""

    def is_export(self, columns: frozenset[str]) -> bool:
        """Return whether a file with these columns is an export of this cloud's bill."""
        ...

    def read_lines(self, row: Mapping[str, Any]) -> Iterator[BillLine]:
        """Yield what one row says.

        Raises:
            WrongLineError: A value cannot be read.
        """
        ...

    def name_form(self, row: Mapping[str, Any]) -> str:
        """Return what differs between two kinds of report of one bill; "" where this row does not say it."""
        ...

    def list_identity(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the columns that are the same for a row in each delivery of a report, with their values, sorted."""
        ...


@cache
def load_bill_readers() -> tuple[tuple[str, BillReader], ...]:
    """Return the names of the drivers that read bills, with their modules."""
    names = (name for name in list_driver_names() if has_part(name, "bills"))
    return tuple((name, cast(BillReader, load_part(name, "bills"))) for name in names)


def read_amount(value: object) -> Decimal:
    """Return an amount of money. Raises WrongLineError."""
    try:
        found = Decimal(str(value)) if value not in (None, "") else Decimal(0)
    except InvalidOperation:
        raise WrongLineError(f"{show_value(value)} is not an amount") from None
    if not found.is_finite() or not -_MOST_DOLLARS <= found <= _MOST_DOLLARS:
        raise WrongLineError(f"{show_value(value)} is not an amount of a bill")
    return found


def read_moment(value: object) -> float:
    """Return a time as epoch seconds; one without a zone is UTC. Raises WrongLineError."""
    try:
        found = datetime.fromisoformat(str(value).strip().removesuffix(" UTC"))
    except ValueError:
        raise WrongLineError(f"{show_value(value)} is not a time") from None
    moment = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 9e8 < moment < 5e9:  # 1998 to 2128
        raise WrongLineError(f"{show_value(value)} is not a time of a bill")
    return moment


def read_account(value: object) -> str:
    """Return who pays. Raises WrongLineError."""
    if not _ACCOUNT.fullmatch(str(value)):
        raise WrongLineError(f"{show_value(value)} is not a billing account")
    return str(value)


def read_token(value: str) -> str:
    """Return the token of a slice from a label; "" for one that no slice can have."""
    return value if len(value) <= _LONGEST_TOKEN and value.isprintable() else ""


def show_value(value: object) -> str:
    """Return the beginning of a value of a file, for a message."""
    return ascii(str(value)[:40])
