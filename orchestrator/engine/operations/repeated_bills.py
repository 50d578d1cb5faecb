"""Refuse exports that have the lines of one bill twice, because a bill is the sum of its lines.

Two deliveries of one report have the same rows, in other files; two kinds of report have other columns; an hourly and a
daily report have rows of an hour and of a day for the same machines.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from time import gmtime, strftime
from typing import Any

from orchestrator.errors import UserError
from orchestrator.plan.charges import MACHINES
from orchestrator.providers.bills import BillLine, BillReader

_HOUR, _DAY = 3600.0, 23 * 3600.0  # seconds that a row of an hourly report has at most, and one of a daily one at least
_LEAST_SHARE = 0.5  # of the rows of a file: two rows of one report may be alike, and most are not


class RepeatedBills:
    """The rows of slices on record that were read, by file."""

    def __init__(self) -> None:
        self._forms: dict[str, str] = {}  # kind of report by file
        self._bills: dict[tuple[str, str, str], dict[str, None]] = {}  # files of each bill
        self._files: dict[bytes, str] = {}  # the first file with a row, by the row's digest
        self._rows: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
        self._others: dict[str, str] = {}  # a file with the same rows
        self._hours: dict[tuple[str, str, str, str, str], str] = {}  # a file with an hour of a slice's machines, by day
        self._days: dict[tuple[str, str, str, str, str], str] = {}  # likewise, with a day

    def note_form(self, uri: str, reader: BillReader, row: Mapping[str, Any]) -> None:
        """Note of which kind of report a file is, by any of its rows."""
        if not self._forms.get(uri):
            self._forms[uri] = reader.name_form(row)

    def add(self, uri: str, source: str, reader: BillReader, row: Mapping[str, Any], line: BillLine) -> None:
        """Note a row of a slice on record.

        Args:
            uri: The file.
            source: The driver of the cloud.
            reader: Its module `bills`.
            row: The row.
            line: The first line of it.
        """
        bill = (source, line.account, line.month)
        self._bills.setdefault(bill, {})[uri] = None
        digest = hashlib.blake2b(repr((bill, reader.list_identity(row))).encode(), digest_size=12).digest()
        first = self._files.setdefault(digest, uri)
        self._rows[uri] += 1
        if line.part == MACHINES:
            length, day = line.until - line.begin, strftime("%Y-%m-%d", gmtime(line.begin))
            kind = self._hours if length <= _HOUR else self._days if length >= _DAY else {}
            kind.setdefault((*bill, line.token, day), uri)
        if first != uri:
            self._repeated.update((first, uri))
            self._others[uri], self._others[first] = first, uri

    def refuse_repeated(self) -> None:
        """Raise UserError where files have the lines of one bill twice."""
        for (source, account, month), files in self._bills.items():
            first = {self._forms[uri]: uri for uri in files}
            if len(first) > 1:
                one, other, *_ = sorted(first.values())
                raise _make_error(f"two kinds of report of {month} of {account} ({source})", one, other)
        if day := next((one for one in self._days if self._hours.get(one, self._days[one]) != self._days[one]), None):
            what = f"the machines of {day[3]} on {day[4]} by the hour and by the day"
            raise _make_error(what, self._days[day], self._hours[day])
        for uri, count in self._rows.items():
            if self._repeated[uri] >= _LEAST_SHARE * count:
                what = f"the same rows twice ({min(self._repeated[uri], count):,} of {count:,} of one file)"
                raise _make_error(what, *sorted((uri, self._others[uri])))


def _make_error(what: str, one: str, other: str) -> UserError:
    return UserError(
        f"these exports have {what}",
        f"costs would count twice; see {one[-200:]} and {other[-200:]}",
        "name the files of one report alone, or the folder of its newest delivery; nothing was imported",
    )
