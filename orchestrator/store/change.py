"""A change as data: the rows that change, what must be true for it, and the texts of its events. Pure.

`apply_change` executes it: on SQLite in one transaction, on PostgreSQL by one call of a function of the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Table

from orchestrator.store.audited import clean_text


class Verb(StrEnum):
    """What a RowChange does with its row."""

    INSERT = "insert"
    UPDATE = "update"
    EVENT = "event"  # no row, only the event


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDetails:
    """The text of an event: cluster is a name ("" for none), cause the reason for the change."""

    cluster: str
    kind: str
    what: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What must be true of a row while the change takes effect; else nothing is changed.

    Attributes:
        table: its table: an audited one, or leases.
        key: the columns of its primary key.
        values: columns that must have these values; None: the row must not exist.
    """

    table: Table
    key: Mapping[str, Any]
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row that is inserted or changed, with its event.

    Nothing changes, and no event is recorded, when a row to be inserted has a key or a unique name that exists, or
    when a row to be updated has all these values.

    Attributes:
        event: the event's text.
        table: the table of the row; None for Verb.EVENT.
        key: the columns of the primary key of a row to be updated, which must exist.
        values: the new values by column.
    """

    verb: Verb
    event: EventDetails
    table: Table | None = None
    key: Mapping[str, Any] = field(default_factory=dict[str, Any])
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """Several row changes that happen all or not at all.

    Attributes:
        id: random; every event has it. A request that arrives twice on PostgreSQL, because its first answer was
            lost, is done once.
        at: epoch seconds of the events.
        user: who acts; on PostgreSQL the server uses the login instead.
        client: computer and process, for the actor of the events.
        cause: the cause of events that name none.
        guards: are checked in this order, before the first change.
        changes: are done in this order.
    """

    id: str
    at: float
    user: str
    client: str
    cause: str
    guards: tuple[Guard, ...]
    changes: tuple[RowChange, ...]

    def to_json(self) -> str:
        """Return what the server's function `orch_change` reads."""
        return json.dumps(
            {
                "id": self.id,
                "at": clean_text(self.at),
                "client": clean_text(self.client),
                "guards": [_guard_to_json(guard) for guard in self.guards],
                "changes": [self._change_to_json(change) for change in self.changes],
            }
        )

    def _change_to_json(self, change: RowChange) -> dict[str, Any]:
        return {
            "verb": change.verb.value,
            "table": change.table.name if change.table is not None else "",
            "key": clean_values(change.key),
            "values": clean_values(change.values),
            "cluster": clean_text(change.event.cluster),
            "kind": change.event.kind,
            "what": clean_text(change.event.what),
            "cause": clean_text(change.event.cause or self.cause),
        }


def insert_row(table: Table, values: Mapping[str, Any], event: EventDetails) -> RowChange:
    """Return the change that inserts a row. `values` has every column without a default."""
    return RowChange(verb=Verb.INSERT, event=event, table=table, values=values)


def update_row(table: Table, key: Mapping[str, Any], values: Mapping[str, Any], event: EventDetails) -> RowChange:
    """Return the change that gives columns of an existing row new values."""
    return RowChange(verb=Verb.UPDATE, event=event, table=table, key=key, values=values)


def clean_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as every database can hold them."""
    return {column: clean_text(value) for column, value in values.items()}


def complete_row(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that an insert of `values` makes: the other columns have their defaults."""
    return {column.name: _default_of(column) for column in table.columns} | clean_values(values)


def _default_of(column: Any) -> Any:
    default = column.server_default
    return None if default is None else column.type.python_type(str(default.arg))


def _guard_to_json(guard: Guard) -> dict[str, Any]:
    values = clean_values(guard.values) if guard.values is not None else None
    return {"table": guard.table.name, "key": clean_values(guard.key), "values": values}
