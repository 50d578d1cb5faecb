"""The proofs by the audit: rows rebuilt from the events alone, and the chain checked event by event. Light and pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TypeAlias

from orchestrator.store.audited import DEFAULTS, KEYS, Head, is_hash_of, parse_subject
from orchestrator.store.records import EventRecord

Key: TypeAlias = tuple[Any, ...]
Tables: TypeAlias = dict[str, dict[Key, dict[str, Any]]]  # table -> key -> audited columns


@dataclass(frozen=True, slots=True)
class Fault:
    """A break of the chain. seq: the first event that does not fit; 0 for the end of the chain."""

    seq: int
    what: str

    def __str__(self) -> str:
        return f"event {self.seq}: {self.what}" if self.seq else self.what


def rebuild_rows(events: Iterable[EventRecord]) -> Iterator[tuple[str, Key, dict[str, Any]]]:
    """Yield the table, the key and the audited columns of each row that results from the events.

    Args:
        events: All that changed rows, those of one row together and oldest first.

    Raises:
        ValueError: an event contradicts the events before it.
    """
    for subject, own in groupby(events, key=lambda event: event.subject):
        table, key = parse_subject(subject)
        row: dict[str, Any] | None = None
        for event in own:
            row = _apply_event(table, row, event)
        if row is not None:
            yield table, tuple(key.values()), row


def _apply_event(table: str, row: dict[str, Any] | None, event: EventRecord) -> dict[str, Any]:
    after: dict[str, Any] = json.loads(event.after or "{}")
    if event.before is None:
        if row is not None:
            raise ValueError(f"event {event.seq}: {event.subject} exists already")
        return {**DEFAULTS.get(table, {}), **after}
    before: dict[str, Any] = json.loads(event.before)
    if row is None or any(row.get(column) != value for column, value in before.items()):
        raise ValueError(f"event {event.seq}: {event.subject} differs from the state that the event records as before")
    return row | after


def rebuild_tables(events: Iterable[EventRecord]) -> Tables:
    """Return the tables that result from all events, in any order of the rows. Columns that are not audited are absent.

    Raises:
        ValueError: an event contradicts the events before it.
    """
    tables: Tables = {table: {} for table in KEYS}
    changing = (event for event in events if event.after is not None)
    for table, key, row in rebuild_rows(sorted(changing, key=lambda event: event.subject)):
        tables[table][key] = row
    return tables


def verify_chain(events: Iterable[EventRecord], head: Head | None = None) -> Fault | None:
    """Return the first event that was changed, removed, added or moved since it was written, or None.

    Args:
        events: the whole audit, oldest first.
        head: the head that the store records; with it, events removed from the end are found as well.
    """
    last = Head()
    for event in events:
        if event.prev_hash != last.hash:
            return Fault(event.seq, f"does not follow event {last.seq}: one was removed, added or moved")
        if event.seq <= last.seq:
            return Fault(event.seq, f"comes after event {last.seq}")
        if not is_hash_of(asdict(event)):
            return Fault(event.seq, "was changed after it was written")
        last = Head(event.seq, event.hash)
    if head is not None and head != last:
        return Fault(0, f"the audit ends with event {last.seq}, and should end with event {head.seq}")
    return None
