"""The one way to change a row: the change and its event in one transaction, the same on both databases.

Each transaction that changes something first locks the head of the event chain. So changes happen one after the
other, sequence numbers follow the order of commits, and no two transactions can wait for each other.

A change is two batches of statements. The first locks the head, inserts, and reads what guards and updates need; what
the events say is computed from its rows here. The second updates, writes the events and commits. On PostgreSQL a batch
is one round trip (batches.py), so the head is locked for about one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table

from orchestrator.store.audited import KEYS, Head, clean_text, format_subject, hash_event, select_audited, to_json
from orchestrator.store.batches import (
    Rows,
    Statement,
    batches_of,
    insert_only,
    insert_row_or_nothing,
    select_row,
    update_only,
)
from orchestrator.store.change import ChangeRequest, Guard, RowChange, Verb, clean_values, complete_row
from orchestrator.store.schema import events, meta

CHAIN = "chain"  # key of the head in the table meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What happened.

    Attributes:
        made: for each change, whether it changed its row or recorded its event.
        failed: index of the guard that did not hold, so that nothing was changed; None when all held.
    """

    made: tuple[bool, ...] = ()
    failed: int | None = None


def apply_change(tx: Connection, request: ChangeRequest) -> Applied:
    """Do all changes of a request and commit them, or none when a guard does not hold.

    A request that arrives again, because its answer was lost, is not done again: its events have its id.

    Args:
        tx: A connection that has no open transaction.
        request: What changes.
    """
    batches = batches_of(tx)
    reads = [_LOCK_HEAD, _find_request(request.id)]
    reads += [select_row(guard.table, _key_of(guard.table, guard.key), guard.values or ()) for guard in request.guards]
    first, *later = _divide(request.changes)
    answers = batches.begin([*reads, *map(_read_of, first)])
    head, (known, *guarded) = _read_head(answers[0]), answers[1 : len(reads)]
    failed = next((n for n, guard in enumerate(request.guards) if not _holds(guard, guarded[n])), None)
    if known or failed is not None:
        batches.roll_back()
        texts = {row["what"] for row in known}
        was_made = tuple(clean_text(change.event.what) in texts for change in request.changes) if known else ()
        return Applied(made=was_made, failed=None if known else failed)
    writing = _Writing(request, head)
    made = [*map(writing.add, first, answers[len(reads) :])]
    for part in later:
        sent = writing.take()
        made += map(writing.add, part, batches.send([*sent, *map(_read_of, part)])[len(sent) :])
    batches.commit(writing.take())
    return Applied(made=tuple(made))


class LockedChain:
    """A transaction that has locked the head of the chain of events, until it ends.

    Attributes:
        tx: the transaction, for what has no events.
        at: epoch seconds of the events.
    """

    def __init__(self, tx: Connection, request: ChangeRequest) -> None:
        self.tx = tx
        self.at = request.at
        self._batches = batches_of(tx, is_open=True)
        self._writing = _Writing(request, _read_head(self._batches.send([_LOCK_HEAD])[0]))

    def apply(self, change: RowChange) -> bool:
        """Change a row, with its event; return whether anything changed."""
        (found,) = self._batches.send([_read_of(change)])
        made = self._writing.add(change, found)
        self._batches.send(self._writing.take())
        return made


class _Writing:
    """The statements that a request still has to send: its updates, its events, and the new head."""

    def __init__(self, request: ChangeRequest, head: Head) -> None:
        self._request = request
        self._head = head
        self._statements: list[Statement] = []
        self._updated: dict[str, dict[str, Any]] = {}  # by subject: a row may change twice

    def add(self, change: RowChange, found: Rows) -> bool:
        """Add a change, whose row was read or inserted; return whether it changes anything."""
        if change.table is None:
            self._add_event(change, "", None, None)
            return True
        if change.verb is Verb.INSERT:
            if found:
                row = complete_row(change.table, change.values)
                subject = format_subject(change.table.name, row)
                self._add_event(change, subject, None, select_audited(change.table.name, row))
            return bool(found)
        return self._add_update(change, change.table, found)

    def take(self) -> list[Statement]:
        """Return the statements, and begin again without any."""
        statements, self._statements = self._statements, []
        if statements:
            statements.append(update_only(meta, {"key": CHAIN}, {"value": str(self._head)}))
        return statements

    def _add_update(self, change: RowChange, table: Table, found: Rows) -> bool:
        if not found:
            raise LookupError(f"no row {dict(change.key)} in {table.name}")
        subject = format_subject(table.name, found[0])
        row = self._updated.setdefault(subject, found[0])
        row.update({column: value for column, value in found[0].items() if column not in row})
        changed = {column: value for column, value in clean_values(change.values).items() if row[column] != value}
        if not changed:
            return False
        self._statements.append(update_only(table, _key_of(table, change.key), changed))
        after = select_audited(table.name, changed)
        if after:
            self._add_event(change, subject, {column: row[column] for column in after}, after)
        row.update(changed)
        return True

    def _add_event(
        self, change: RowChange, subject: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        request, text = self._request, change.event
        values: dict[str, Any] = {
            "seq": self._head.seq + 1,
            "at": clean_text(request.at),
            "cluster": clean_text(text.cluster),
            "actor": clean_text(f"{request.user}@{request.client}"),
            "kind": text.kind,
            "what": clean_text(text.what),
            "subject": subject,
            "cause": clean_text(text.cause or request.cause),
            "before": to_json(before),
            "after": to_json(after),
            "request": request.id,
        }
        hashed = hash_event(values, self._head.hash)
        row = values | {"prev_hash": self._head.hash, "hash": hashed}
        self._statements.append(insert_only(events, row))
        self._head = Head(self._head.seq + 1, hashed)


_LOCK_HEAD = select_row(meta, {"key": CHAIN}, ["value"])


def _divide(changes: Sequence[RowChange]) -> list[list[RowChange]]:
    """Return the changes in parts: a row is inserted after the updates before it, which may have freed its name."""
    parts: list[list[RowChange]] = [[]]
    updated: set[str] = set()
    for change in changes:
        name = change.table.name if change.table is not None else ""
        if change.verb is Verb.INSERT and name in updated:
            parts.append([])
            updated.clear()
        if change.verb is Verb.UPDATE:
            updated.add(name)
        parts[-1].append(change)
    return parts


def _find_request(request_id: str) -> Statement:
    return Statement(sql="SELECT what FROM events WHERE request = ?", values=(request_id,), table=events)


def _read_head(rows: Rows) -> Head:
    return Head.parse(rows[0]["value"])


def _read_of(change: RowChange) -> Statement:
    """Return the statement by which a change learns of its row: the insert itself, or the row as it is."""
    if change.table is None:
        return _NOTHING
    if change.table.name not in KEYS:
        raise LookupError(f"table {change.table.name} is not audited")
    if change.verb is Verb.INSERT:
        return insert_row_or_nothing(change.table, clean_values(change.values))
    return select_row(change.table, _key_of(change.table, change.key), change.values)


_NOTHING = Statement(sql="SELECT 1")  # of an event without a row, so that each change has one answer


def _key_of(table: Table, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that name one row. A key without one of them is an error, and never several rows."""
    columns = KEYS.get(table.name) or tuple(column.name for column in table.primary_key)
    return {column: clean_text(key[column]) for column in columns}


def _holds(guard: Guard, rows: Rows) -> bool:
    if not rows or guard.values is None:
        return not rows and guard.values is None
    return all(rows[0][column] == value for column, value in clean_values(guard.values).items())
