"""Is the store what it says? For `orch doctor`: every page, every event, every audited row. Light, reads only."""

from __future__ import annotations

from typing import Any

from orchestrator.store.audited import KEYS, audited
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.replay import Tables, rebuild, verify


def faults(location: Location) -> tuple[str, ...]:
    """What is wrong, in words; empty when all is well. Reads everything: seconds for 100 000 events.

    A store of version 1 has no audit yet and is checked page by page only. Raises StoreError when it cannot be read.
    """
    with open_reader_at(location) as reader:
        pages = reader.page_fault()
        if pages:
            return (f"the file is damaged: {pages}",)
        if reader.version < 2:
            return ()
        events = tuple(reader.all_events())
        broken = verify(events, reader.head())
        if broken is not None:
            return (f"the audit was changed: {broken}",)
        try:
            expected = rebuild(events)
        except ValueError as error:
            return (f"the audit contradicts itself: {error}",)
        return tuple(_differences(expected, tables(reader)))


def tables(reader: Reader) -> Tables:
    """The audited columns of all audited tables, as replay.rebuild gives them."""
    found: Tables = {}
    for table, columns in KEYS.items():
        rows = [_plain(table, {**row}) for row in reader.rows(table)]
        found[table] = {tuple(row[column] for column in columns): row for row in rows}
    return found


def _plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if "started" in row:
        row["started"] = bool(row["started"])  # SQLite has no booleans of its own
    return audited(table, row)


def _differences(expected: Tables, found: Tables) -> list[str]:
    said: list[str] = []
    for table, rows in expected.items():
        for key in rows.keys() | found[table].keys():
            name = f"{table[:-1]} {'/'.join(str(part) for part in key)}"
            told, there = rows.get(key), found[table].get(key)
            if told is None or there is None:
                said.append(f"{name} was {'added' if told is None else 'removed'} from outside")
            elif told != there:
                columns = sorted(column for column in told | there if told.get(column) != there.get(column))
                said.append(f"{name} was changed from outside: {', '.join(columns)}")
    return sorted(said)
