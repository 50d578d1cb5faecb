"""A change as data: the rows that change, what must be true for it, and the texts of its events. Pure.

`apply_change` executes it, in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Float, Table

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
        id: random; every event has it. A request that arrives twice, because its first answer was lost, is done once.
        at: epoch seconds of the events.
        user: who acts.
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
    row = {column.name: _default_of(column) for column in table.columns} | clean_values(values)
    return {name: _convert(table.c[name], value) for name, value in row.items()}


def _convert(column: Any, value: Any) -> Any:
    """Return a number as the database gives it back."""
    return float(value) if isinstance(column.type, Float) and value is not None else value


def _default_of(column: Any) -> Any:
    default = column.server_default
    return None if default is None else column.type.python_type(str(default.arg))
