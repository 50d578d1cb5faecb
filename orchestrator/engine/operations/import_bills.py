"""Import bills: lines with our label become what slices cost, and what has none is no one's cost.

A bill of a month is replaced whole, since its lines have no lasting names: the ids of AWS differ between two
deliveries of one report (Data Exports user guide, "Identity columns", 2026), and Google's rows have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

from orchestrator.engine.operations.bill_files import list_bill_files, read_rows
from orchestrator.engine.operations.repeated_bills import RepeatedBills
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount
from orchestrator.messages import count_noun
from orchestrator.providers.bills import BillLine, BillReader, WrongLineError, load_bill_readers
from orchestrator.store.bill_records import BillRecord

MOST_LINES = 200_000  # of a bill, by slice, part and day
_MOST_DOLLARS = Decimal(10) ** 9  # of one of these, and a tenth of all: sums of a database stay below 2**63
_SHOWN = 5
CURRENCY = "USD"
Amounts: TypeAlias = dict[tuple[float, float], Decimal]  # US dollars by begin and end


@dataclass(slots=True, kw_only=True)
class ReadBills:
    """What exports say.

    Attributes:
        days: What each time of a part of a slice sums to, by BillRecord.day.
        times: How many times there are in `days`.
        months: Source, account and month of each bill.
        rows: Lines of the exports.
        unlabelled: Those without our label, and their sum in dollars.
        unknown: Sums in dollars by the token of a slice that is not on record here.
    """

    days: dict[str, tuple[BillRecord, Amounts]] = field(default_factory=dict[str, "tuple[BillRecord, Amounts]"])
    times: int = 0
    months: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    rows: int = 0
    unlabelled: int = 0
    unlabelled_dollars: Decimal = Decimal(0)
    unknown: dict[str, Decimal] = field(default_factory=dict[str, Decimal])

    def list_records(self) -> tuple[BillRecord, ...]:
        """Return the lines of all bills, in whole micro-dollars. Times without a gap between them are one line."""
        made: list[BillRecord] = []
        for one, amounts in self.days.values():
            for (begin, until), amount in _join_amounts(amounts):
                microdollars = int((amount * 1_000_000).to_integral_value())
                made.append(replace(one, begin=begin, until=until, microdollars=microdollars))
        return tuple(made)

    def add(self, source: str, line: BillLine, tokens: frozenset[str]) -> None:
        """Add a line of a bill of `source`. Raises UserError over MOST_LINES, or 24 times as many times."""
        self.rows += 1
        self.months.add((source, line.account, line.month))
        if line.token not in tokens:
            self._add_other(line)
            return
        record = BillRecord(
            source=source,
            account=line.account,
            month=line.month,
            token=line.token,
            part=line.part,
            begin=line.begin,
            until=line.until,
            microdollars=0,
        )
        amounts = self.days.setdefault(record.day, (record, {}))[1]
        self.times += (line.begin, line.until) not in amounts
        amounts[line.begin, line.until] = amounts.get((line.begin, line.until), Decimal(0)) + line.amount
        if len(self.days) > MOST_LINES or self.times > 24 * MOST_LINES:
            raise UserError(f"the bills have over {MOST_LINES:,} lines", "", "import one month at a time")

    def refuse_large(self) -> None:
        """Raise UserError for amounts that no bill has, and that the records could not hold."""
        sums = [abs(amount) for _, amounts in self.days.values() for amount in amounts.values()]
        largest = max((abs(sum(amounts.values(), Decimal(0))) for _, amounts in self.days.values()), default=Decimal(0))
        if max(largest, max(sums, default=largest)) > _MOST_DOLLARS or sum(sums, Decimal(0)) > 10 * _MOST_DOLLARS:
            most = format_amount(_MOST_DOLLARS, 0)
            raise UserError(
                f"these bills add up to over {most} for one slice and day, or ten times for all",
                "no bill is that large",
                "export the bill again; nothing was imported",
            )

    def _add_other(self, line: BillLine) -> None:
        if line.currency != CURRENCY:  # a bill is in one currency: it is refused whole
            raise WrongLineError(f"it is in {line.currency[:10]!a}, and the records are in {CURRENCY}")
        if not line.token:
            self.unlabelled += 1
            self.unlabelled_dollars += line.amount
        elif line.token in self.unknown or len(self.unknown) < MOST_LINES:
            self.unknown[line.token] = self.unknown.get(line.token, Decimal(0)) + line.amount


def _join_amounts(amounts: Amounts) -> list[tuple[tuple[float, float], Decimal]]:
    """Return the sums of times that overlap or follow on each other; a gap of a second, or more, stays one."""
    found: list[tuple[tuple[float, float], Decimal]] = []
    for (begin, until), amount in sorted(amounts.items()):
        if found and begin < found[-1][0][1] + 1:  # a record is named by the second in which it begins
            (first, last), before = found[-1]
            found[-1] = (first, max(last, until)), before + amount
        else:
            found.append(((begin, until), amount))
    return found


def read_bills(names: Iterable[str], tokens: frozenset[str]) -> ReadBills:
    """Return what exports say. A file that is named twice is read once.

    Args:
        names: Files, folders and URIs.
        tokens: Of all slices on record.

    Raises:
        UserError: A file is no export, or cannot be read; a line of ours is not in US dollars; two files have the
            lines of one bill twice.
    """
    found, repeated = ReadBills(), RepeatedBills()
    for uri in dict.fromkeys(uri for name in names for uri in list_bill_files(name)):
        _read_file(found, repeated, uri, tokens)
    repeated.refuse_repeated()
    found.refuse_large()
    return found


def _read_file(found: ReadBills, repeated: RepeatedBills, uri: str, tokens: frozenset[str]) -> None:
    reader: BillReader | None = None
    source = ""
    for number, row in enumerate(read_rows(uri), start=1):
        if reader is None:
            source, reader = _find_reader(uri, row)
        repeated.note_form(uri, reader, row)
        try:
            for count, line in enumerate(reader.read_lines(row)):
                if line.token in tokens and line.currency != CURRENCY:
                    raise WrongLineError(f"it is in {line.currency[:10]!a}, and the records are in {CURRENCY}")
                if line.token in tokens and not count:
                    repeated.add(uri, source, reader, row, line)
                found.add(source, line, tokens)
        except (WrongLineError, KeyError) as error:
            raise UserError(f"row {number} of {uri} cannot be read", str(error), "nothing was imported") from error


def _find_reader(uri: str, row: Mapping[str, Any]) -> tuple[str, BillReader]:
    columns = frozenset(map(str, row))
    for source, reader in load_bill_readers():
        if reader.is_export(columns):
            return source, reader
    raise UserError(
        f"{uri} is not a billing export that orch knows",
        "it lacks columns of a Cost and Usage Report, and of a usage cost export of Cloud Billing",
        "which exports are read: docs/cost.md",
    )


def refuse_partial_bills(found: ReadBills, known: Iterable[BillRecord]) -> None:
    """Raise UserError where bills lack lines that earlier exports of the same months had: a file may be missing."""
    missing = list(_list_missing(found, known))
    if not missing:
        return
    shown = ", ".join(sorted({f"{one.token} on {one.day[-10:]}" for one in missing})[:_SHOWN])
    raise UserError(
        f"these exports lack {count_noun(len(missing), 'line')} that an earlier import of the same bills had",
        f"a bill of a month is replaced whole, and may have several files; missing: {shown}",
        "name all files of the month, or its folder; if the bill has become shorter: --replace",
    )


def _list_missing(found: ReadBills, known: Iterable[BillRecord]) -> Iterator[BillRecord]:
    for one in known:
        same = (one.source, one.account, one.month) in found.months
        if same and one.microdollars and one.day not in found.days:
            yield one
