"""The one way to change a row: the change and the event that tells of it, in one transaction.

Each transaction that changes something first locks the head of the event chain. So changes happen one after the
other on both databases, sequence numbers follow the order of commits, and no two transactions can wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update

from orchestrator.store.audited import Head, audited, clean, digest, subject, to_json
from orchestrator.store.schema import events, meta

CHAIN = "chain"  # key of the head in the table meta


@dataclass(frozen=True, slots=True)
class Why:
    """What an event says: cluster is the name ("" for none), cause the reason of the change."""

    cluster: str
    kind: str
    what: str
    cause: str = ""


def lock_head(tx: Connection) -> Head:
    """Wait for the transactions before this one. SQLite has done so at BEGIN IMMEDIATE."""
    return Head.read(tx.execute(select(meta.c.value).where(meta.c.key == CHAIN).with_for_update()).scalar_one())


class Change:
    """One writing transaction. at: epoch seconds of all that it writes. cause: for events that name none."""

    def __init__(self, tx: Connection, at: float, actor: str, cause: str) -> None:
        self.tx = tx
        self.at = float(at)
        self._actor = clean(actor)
        self._cause = cause
        self._before = lock_head(tx)
        self.head = self._before

    @property
    def has_events(self) -> bool:
        return self.head != self._before

    def insert(self, table: Table, values: dict[str, Any], why: Why) -> bool:
        """Add a row; False when a row with its key or its unique name is there already, and nothing is changed."""
        values = {column: clean(value) for column, value in values.items()}
        made = self.tx.execute(_insert_or_nothing(self.tx, table, values)).mappings().first()
        if made is None:
            return False
        row = {**made}
        self._append(why, subject(table.name, row), None, audited(table.name, row))
        return True

    def update(self, table: Table, key: dict[str, Any], values: dict[str, Any], why: Why) -> bool:
        """Change columns of one row; False when all of them are so already. The row must exist."""
        row = self._row(table, key)
        values = {column: clean(value) for column, value in values.items()}
        changed = {column: value for column, value in values.items() if row[column] != value}
        if not changed:
            return False
        self.tx.execute(update(table).where(_is(table, key)).values(**changed))
        told = audited(table.name, changed)
        if told:
            self._append(why, subject(table.name, row), {column: row[column] for column in told}, told)
        return True

    def remark(self, why: Why) -> None:
        """An event that changes no row."""
        self._append(why, "", None, None)

    def _row(self, table: Table, key: dict[str, Any]) -> dict[str, Any]:
        found = self.tx.execute(select(table).where(_is(table, key)).with_for_update()).mappings().one()
        return dict(found)

    def _append(self, why: Why, about: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        values: dict[str, Any] = {
            "seq": self.head.seq + 1,
            "at": self.at,
            "cluster": clean(why.cluster),
            "actor": self._actor,
            "kind": why.kind,
            "what": clean(why.what),
            "subject": about,
            "cause": clean(why.cause or self._cause),
            "before": to_json(before),
            "after": to_json(after),
        }
        self.head = append(self.tx, values, self.head)


def append(tx: Connection, values: dict[str, Any], head: Head) -> Head:
    """Write one event behind `head`, and the new head. values: all columns but the hashes."""
    hashed = digest(values, head.hash)
    tx.execute(insert(events).values(**values, prev_hash=head.hash, hash=hashed))
    moved = Head(values["seq"], hashed)
    tx.execute(update(meta).where(meta.c.key == CHAIN).values(value=str(moved)))
    return moved


def _is(table: Table, key: dict[str, Any]) -> Any:
    return and_(*(table.c[column] == value for column, value in key.items()))


def _insert_or_nothing(tx: Connection, table: Table, values: dict[str, Any]) -> Any:
    if tx.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)
