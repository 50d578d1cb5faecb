"""The check of a store for `orch events --verify`: every page, every event, every audited row. Light, reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeAlias

from orchestrator.store.audited import KEYS, format_subject, select_audited
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.replay import Key, Tables, rebuild_rows, verify_chain

Rows: TypeAlias = dict[Key, dict[str, Any]]  # audited columns by key
_ROWS = 250  # that are compared together


def find_store_faults(location: Location) -> tuple[str, ...]:
    """Return the faults of a store as text, () for none. Reads everything: a minute for a million events.

    Raises:
        StoreError: the store cannot be read.
    """
    with open_reader_at(location) as reader:
        pages = reader.find_page_fault()
        if pages:
            return (f"the file is damaged: {pages}",)
        reader.hold_snapshot()
        broken = verify_chain(reader.all_events(), reader.head())
        if broken is not None:
            return (f"the audit was changed: {broken}",)
        try:
            return tuple(sorted(_list_differences(reader)))
        except ValueError as error:
            return (f"the audit contradicts itself: {error}",)


def _list_differences(reader: Reader) -> Iterator[str]:
    """Yield how rows differ from those that result from the events. Raises ValueError as replay.rebuild_rows does."""
    counted = dict.fromkeys(KEYS, 0)
    expected = rebuild_rows(reader.row_events())
    while part := list(islice(expected, _ROWS)):
        for table, own in groupby(part, key=itemgetter(0)):
            rows = {key: row for _, key, row in own}
            counted[table] += len(rows)
            yield from _compare(table, rows, _read_rows(reader, table, rows))
    for table, number in counted.items():
        if reader.count_rows(table) != number:
            yield from _list_added(reader, table)


def _compare(table: str, expected: Rows, found: Rows) -> Iterator[str]:
    for key, audit in expected.items():
        actual = found.get(key)
        if actual is None:
            yield f"{_name(table, key)} was removed by another program"
        elif columns := sorted(one for one in audit | actual if audit.get(one) != actual.get(one)):
            yield f"{_name(table, key)} was changed by another program: {', '.join(columns)}"


def _list_added(reader: Reader, table: str) -> Iterator[str]:
    for row in reader.rows(table):
        if not reader.has_row_event(format_subject(table, row)):
            yield f"{_name(table, (row[column] for column in KEYS[table]))} was added by another program"


def _name(table: str, key: Iterable[object]) -> str:
    return f"{table[:-1]} {'/'.join(str(part) for part in key)}"


def _read_rows(reader: Reader, table: str, keys: Collection[Key]) -> Rows:
    rows = (_plain(table, {**row}) for row in reader.find_rows(table, keys))
    return {tuple(row[column] for column in KEYS[table]): row for row in rows}


def read_audited_tables(reader: Reader) -> Tables:
    """Return the audited columns of all audited tables, as replay.rebuild_tables gives them."""
    found: Tables = {}
    for table, columns in KEYS.items():
        rows = [_plain(table, {**row}) for row in reader.rows(table)]
        found[table] = {tuple(row[column] for column in columns): row for row in rows}
    return found


def _plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if "started" in row:
        row["started"] = bool(row["started"])  # SQLite has no booleans
    return select_audited(table, row)
