"""The records of what bills say, of blocks that were bought, and of what was estimated for runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import gmtime, strftime
from typing import Any

from orchestrator.plan.charges import BILLED_PARTS, BilledAmount
from orchestrator.store.audited import format_subject
from orchestrator.store.version import unknown_value_error


@dataclass(frozen=True, slots=True, kw_only=True)
class BillRecord:
    """What the bill of a month says of one part of a slice in a time that begins on one day.

    Attributes:
        source: The driver of the cloud that sent the bill.
        account: Who pays it.
        month: Of the bill, such as 2026-11; a correction may be of an earlier day.
        token: Of the slice.
        part: One of charges.BILLED_PARTS.
        begin: Epoch seconds; likewise `until`.
        imported: When this amount was imported, in epoch seconds.
    """

    source: str
    account: str
    month: str
    token: str
    part: str
    begin: float
    until: float
    microdollars: int
    imported: float = 0.0

    @property
    def day(self) -> str:
        """Its bill, slice and part, and the day on which it begins."""
        day = strftime("%Y-%m-%d", gmtime(self.begin))
        return ":".join((self.source, self.account, self.month, self.token, self.part, day))

    @property
    def line(self) -> str:
        """What makes it one row: the same line of a later export replaces it. From midnight on, it is the day."""
        time = strftime("T%H:%M:%S", gmtime(self.begin))
        return self.day if time == "T00:00:00" else self.day + time

    @property
    def amount(self) -> BilledAmount:
        """What it says, without whose it is, of the time until its import: a bill says nothing of what comes later."""
        until = max(self.begin, min(self.until, self.imported)) if self.imported else self.until
        return BilledAmount(part=self.part, begin=self.begin, until=until, microdollars=self.microdollars)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillChange:
    """What an import of bills changes.

    Attributes:
        new: Lines that were not on record.
        changed: Lines that were on record with another amount or time.
        result: All lines on record after it.
    """

    new: tuple[BillRecord, ...]
    changed: tuple[BillRecord, ...]
    result: tuple[BillRecord, ...]


def compare_bills(
    known: Iterable[BillRecord], found: Sequence[BillRecord], months: Collection[tuple[str, str, str]]
) -> BillChange:
    """Return what an import of whole bills changes.

    A line that a bill had and has no more costs nothing and covers no time from now on; it stays, for the audit.

    Args:
        known: All lines on record.
        found: Every line of these bills.
        months: Source, account and month of each.
    """
    before = {one.line: one for one in known}
    kept = {one.line for one in found}
    missing = [
        replace(one, microdollars=0, until=one.begin)
        for line, one in before.items()
        if line not in kept and (one.source, one.account, one.month) in months
    ]
    again = [one for one in (*found, *missing) if one.line in before]
    return BillChange(
        new=tuple(one for one in found if one.line not in before),
        changed=tuple(one for one in again if one != replace(before[one.line], imported=one.imported)),
        result=tuple({**before, **{one.line: one for one in (*found, *missing)}}.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecord:
    """Capacity that was bought beforehand.

    Attributes:
        block_id: In the words of the cloud.
        machine: The type of its machines.
        begin: Epoch seconds; likewise `until` and `bought`.
        microdollars: Its whole price.
        member: Who bought it.
    """

    block_id: str
    provider: str
    region: str
    machine: str
    count: int
    begin: float
    until: float
    microdollars: int
    project: str
    member: str
    bought: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRecord:
    """What was estimated for a run when it was launched.

    Attributes:
        at: Epoch seconds.
        estimate: JSON as offers/predictions.py writes it.
    """

    run_id: str
    at: float
    estimate: str


def bill_from_row(row: Mapping[Any, Any]) -> BillRecord:
    """Return the record of a row of `bills`. Raises StoreError for a part that is unknown."""
    if row["part"] not in BILLED_PARTS:
        raise unknown_value_error(format_subject("bills", row), "part", row["part"], BILLED_PARTS)
    return BillRecord(**{name: row[name] for name in BillRecord.__dataclass_fields__})


def bill_to_row(bill: BillRecord) -> dict[str, Any]:
    """Return the columns of a bill's record."""
    return {"line": bill.line, **asdict(bill)}


def block_from_row(row: Mapping[Any, Any]) -> BlockRecord:
    """Return the record of a row of `blocks`."""
    return BlockRecord(**{name: row[name] for name in BlockRecord.__dataclass_fields__})


def prediction_from_row(row: Mapping[Any, Any]) -> PredictionRecord:
    """Return the record of a row of `predictions`. Raises StoreError for an estimate that is no JSON object."""
    try:
        valid = isinstance(json.loads(row["estimate"]), dict)
    except ValueError:
        valid = False
    if not valid:
        raise unknown_value_error(format_subject("predictions", row), "estimate", row["estimate"])
    return PredictionRecord(run_id=row["run_id"], at=row["at"], estimate=row["estimate"])
