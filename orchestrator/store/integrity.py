"""The check of a store for `orch events --verify`: every page, every event, every audited row. Light, reads only."""

from __future__ import annotations

from typing import Any

from orchestrator.store.audited import KEYS, select_audited
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.replay import Tables, rebuild_tables, verify_chain


def find_store_faults(location: Location) -> tuple[str, ...]:
    """Return the faults of a store as text, () for none. Reads everything: seconds for 100 000 events.

    Raises:
        StoreError: the store cannot be read.
    """
    with open_reader_at(location) as reader:
        pages = reader.find_page_fault()
        if pages:
            return (f"the file is damaged: {pages}",)
        reader.hold_snapshot()
        events = tuple(reader.all_events())
        broken = verify_chain(events, reader.head())
        if broken is not None:
            return (f"the audit was changed: {broken}",)
        try:
            expected = rebuild_tables(events)
        except ValueError as error:
            return (f"the audit contradicts itself: {error}",)
        return tuple(_differences(expected, read_audited_tables(reader)))


def read_audited_tables(reader: Reader) -> Tables:
    """Return the audited columns of all audited tables, as replay.rebuild gives them."""
    found: Tables = {}
    for table, columns in KEYS.items():
        rows = [_plain(table, {**row}) for row in reader.rows(table)]
        found[table] = {tuple(row[column] for column in columns): row for row in rows}
    return found


def _plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if "started" in row:
        row["started"] = bool(row["started"])  # SQLite has no booleans
    return select_audited(table, row)


def _differences(expected: Tables, found: Tables) -> list[str]:
    faults: list[str] = []
    for table, rows in expected.items():
        for key in rows.keys() | found[table].keys():
            name = f"{table[:-1]} {'/'.join(str(part) for part in key)}"
            audit, actual = rows.get(key), found[table].get(key)
            if audit is None or actual is None:
                faults.append(f"{name} was {'added' if audit is None else 'removed'} by another program")
            elif columns := sorted(one for one in audit | actual if audit.get(one) != actual.get(one)):
                faults.append(f"{name} was changed by another program: {', '.join(columns)}")
    return sorted(faults)
