"""The one way to change a row: the change and its event in one transaction.

Each transaction that changes something first locks the head of the event chain. So changes happen one after the
other on both databases, sequence numbers follow the order of commits, and no two transactions can wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update

from orchestrator.store.audited import Head, clean_text, format_subject, hash_event, select_audited, to_json
from orchestrator.store.schema import events, meta

CHAIN = "chain"  # key of the head in the table meta


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDetails:
    """The text of an event: cluster is a name ("" for none), cause the reason for the change."""

    cluster: str
    kind: str
    what: str
    cause: str = ""


def lock_head(tx: Connection) -> Head:
    """Lock and return the head of the chain, after earlier transactions. SQLite locks at BEGIN IMMEDIATE."""
    return Head.parse(tx.execute(select(meta.c.value).where(meta.c.key == CHAIN).with_for_update()).scalar_one())


class Change:
    """One writing transaction.

    Attributes:
        at: epoch seconds of everything that it writes.
        head: the head of the event chain, moved by every event.
    """

    def __init__(self, tx: Connection, at: float, actor: str, cause: str) -> None:
        self.tx = tx
        self.at = float(at)
        self._actor = clean_text(actor)
        self._cause = cause
        self._before = lock_head(tx)
        self.head = self._before

    @property
    def has_events(self) -> bool:
        return self.head != self._before

    def insert(self, table: Table, values: dict[str, Any], details: EventDetails) -> bool:
        """Add a row with its event. Return False, and change nothing, when its key or unique name exists."""
        values = {column: clean_text(value) for column, value in values.items()}
        made = self.tx.execute(insert_or_nothing(self.tx, table, values)).mappings().first()
        if made is None:
            return False
        row = {**made}
        self._append(details, format_subject(table.name, row), None, select_audited(table.name, row))
        return True

    def update(self, table: Table, key: dict[str, Any], values: dict[str, Any], details: EventDetails) -> bool:
        """Change columns of one existing row with an event. Return False when all columns have these values."""
        row = self._row(table, key)
        values = {column: clean_text(value) for column, value in values.items()}
        changed = {column: value for column, value in values.items() if row[column] != value}
        if not changed:
            return False
        self.tx.execute(update(table).where(_is(table, key)).values(**changed))
        after = select_audited(table.name, changed)
        if after:
            self._append(details, format_subject(table.name, row), {column: row[column] for column in after}, after)
        return True

    def record_event(self, details: EventDetails) -> None:
        """Record an event that changes no row."""
        self._append(details, "", None, None)

    def _row(self, table: Table, key: dict[str, Any]) -> dict[str, Any]:
        found = self.tx.execute(select(table).where(_is(table, key)).with_for_update()).mappings().one()
        return dict(found)

    def _append(
        self, details: EventDetails, about: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        values: dict[str, Any] = {
            "seq": self.head.seq + 1,
            "at": self.at,
            "cluster": clean_text(details.cluster),
            "actor": self._actor,
            "kind": details.kind,
            "what": clean_text(details.what),
            "subject": about,
            "cause": clean_text(details.cause or self._cause),
            "before": to_json(before),
            "after": to_json(after),
        }
        self.head = append_event(self.tx, values, self.head)


def append_event(tx: Connection, values: dict[str, Any], head: Head) -> Head:
    """Write one event after `head` and return the new head.

    Args:
        tx: the transaction.
        values: all columns but the hashes.
        head: the head so far.
    """
    hashed = hash_event(values, head.hash)
    moved = Head(values["seq"], hashed)
    written = insert(events).values(**values, prev_hash=head.hash, hash=hashed)
    move = update(meta).where(meta.c.key == CHAIN).values(value=str(moved))
    if tx.dialect.name == "postgresql":  # both in one round trip
        tx.execute(move.add_cte(written.cte("written")))
    else:
        tx.execute(written)
        tx.execute(move)
    return moved


def _is(table: Table, key: dict[str, Any]) -> Any:
    return and_(*(table.c[column] == value for column, value in key.items()))


def insert_or_nothing(tx: Connection, table: Table, values: dict[str, Any]) -> Any:
    if tx.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)
