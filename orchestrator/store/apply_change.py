"""The one way to change a row: the change and its event in one transaction.

Each transaction that changes something first locks the head of the event chain. So changes happen one after the
other on both databases, sequence numbers follow the order of commits, and no two transactions can wait for each other.

PostgreSQL does it by the function `orch_change` of data/postgresql.sql in one round trip. For SQLite it is done here;
tests/store runs the same tests on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, text, update

from orchestrator.store.audited import KEYS, Head, clean_text, format_subject, hash_event, select_audited, to_json
from orchestrator.store.change import ChangeRequest, Guard, RowChange, Verb, clean_values
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
    """Do all changes of a request, or none when a guard does not hold. A file's transaction is not committed here."""
    if tx.dialect.name == "postgresql":
        statement = text("SELECT orch_change(CAST(:request AS json))")
        found: dict[str, Any] = tx.execute(statement, {"request": request.to_json()}).scalar_one()
        return Applied(made=tuple(found.get("made", ())), failed=found.get("failed"))
    return _apply_to_file(tx, request)


def lock_head(tx: Connection) -> Head:
    """Lock and return the head of the chain, after earlier transactions. SQLite locks at BEGIN IMMEDIATE."""
    return Head.parse(tx.execute(select(meta.c.value).where(meta.c.key == CHAIN).with_for_update()).scalar_one())


def append_event(tx: Connection, values: dict[str, Any], head: Head) -> Head:
    """Write one event after `head` and return the new head.

    Args:
        tx: the transaction.
        values: all columns but the hashes.
        head: the head so far.
    """
    hashed = hash_event(values, head.hash)
    moved = Head(values["seq"], hashed)
    tx.execute(insert(events).values(**values, prev_hash=head.hash, hash=hashed))
    tx.execute(update(meta).where(meta.c.key == CHAIN).values(value=str(moved)))
    return moved


def insert_or_nothing(tx: Connection, table: Table, values: dict[str, Any]) -> Any:
    """Return the statement that adds a row unless its key or unique name exists, and returns the row."""
    if tx.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)


class LockedChain:
    """A transaction that has locked the head of the chain of events, until it ends.

    Attributes:
        tx: the transaction, for what has no events.
        at: epoch seconds of the events.
    """

    def __init__(self, tx: Connection, request: ChangeRequest) -> None:
        self.tx = tx
        self.at = request.at
        self._request = request
        self._head = lock_head(tx)

    def apply(self, change: RowChange) -> bool:
        """Change a row, with its event; return whether anything changed."""
        row = _change_row(self.tx, change)
        if row is not None and row.is_event:
            self._head = append_event(self.tx, _event_values(self._request, change, row, self._head), self._head)
        return row is not None


def _apply_to_file(tx: Connection, request: ChangeRequest) -> Applied:
    chain = LockedChain(tx, request)
    for number, guard in enumerate(request.guards):
        if not _holds(tx, guard):
            return Applied(failed=number)
    return Applied(made=tuple(chain.apply(change) for change in request.changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """What an event records of its row. is_event: False when only columns changed that the audit leaves out."""

    subject: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    is_event: bool = True


def _change_row(tx: Connection, change: RowChange) -> _Changed | None:
    """Change a row, and return what its event records; None when nothing changed."""
    table, values = change.table, clean_values(change.values)
    if table is None or change.verb is Verb.EVENT:
        return _Changed()
    if change.verb is Verb.INSERT:
        found = tx.execute(insert_or_nothing(tx, table, values)).mappings().first()
        if found is None:
            return None
        row = {**found}
        return _Changed(subject=format_subject(table.name, row), after=select_audited(table.name, row))
    row = {**tx.execute(select(table).where(_is(table, change.key))).mappings().one()}
    changed = {column: value for column, value in values.items() if row[column] != value}
    if not changed:
        return None
    tx.execute(update(table).where(_is(table, change.key)).values(**changed))
    after = select_audited(table.name, changed)
    before = {column: row[column] for column in after}
    return _Changed(subject=format_subject(table.name, row), before=before, after=after, is_event=bool(after))


def _event_values(request: ChangeRequest, change: RowChange, row: _Changed, head: Head) -> dict[str, Any]:
    return {
        "seq": head.seq + 1,
        "at": clean_text(request.at),
        "cluster": clean_text(change.event.cluster),
        "actor": clean_text(f"{request.user}@{request.client}"),
        "kind": change.event.kind,
        "what": clean_text(change.event.what),
        "subject": row.subject,
        "cause": clean_text(change.event.cause or request.cause),
        "before": to_json(row.before),
        "after": to_json(row.after),
        "request": request.id,
    }


def _holds(tx: Connection, guard: Guard) -> bool:
    found = tx.execute(select(guard.table).where(_is(guard.table, guard.key))).mappings().first()
    if found is None or guard.values is None:
        return found is None and guard.values is None
    return all(found[column] == value for column, value in clean_values(guard.values).items())


def _is(table: Table, key: Mapping[str, Any]) -> Any:
    """Return the condition for one row. A key without one of its columns is an error, and never several rows."""
    columns = KEYS.get(table.name) or tuple(column.name for column in table.primary_key)
    return and_(*(table.c[column] == clean_text(key[column]) for column in columns))
