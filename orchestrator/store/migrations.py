"""The creation of the tables, and their migration from an older version: steps in one transaction, under a lock.

A step is frozen when it is released: it has its own SQL and never uses the present definitions of the tables,
except for events, whose form the chain fixes. A crash midway leaves the old version untouched. Before the steps, a
SQLite file is copied to orch.db.bak.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from orchestrator.store.apply_change import CHAIN
from orchestrator.store.audited import Head
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError, backup_path
from orchestrator.store.file_copy import copy_committed_state
from orchestrator.store.incarnation import read_tie, refuse_other_state
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import INCARNATION, INSTALLATION, TIE, read_meta, write_meta
from orchestrator.store.other_state import read_witnesses
from orchestrator.store.schema import metadata
from orchestrator.store.version import (
    MIN_READER,
    MIN_WRITER,
    OLDEST_READER,
    OLDEST_WRITER,
    OPEN_CLUSTERS,
    SCHEMA_VERSION,
    VERSION,
    newer_store_error,
    older_store_error,
    parse_versions,
    refuse_earlier,
    refuse_replaced,
)

_LOCK = 0x6F726368  # "orch": key of PostgreSQL's advisory lock


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTables:
    """What an open store says of itself.

    Attributes:
        installation: The name in every label that is put on machines.
        incarnation: Rises each time that the store is moved, copied or restored.
        version: Of its tables.
    """

    installation: str
    incarnation: int
    version: int


def open_tables(database: Database, at: float, *, accept_other_state: bool = False) -> OpenedTables:
    """Create the tables, or migrate those of a file, where needed, and return what they say.

    Args:
        database: The open store.
        at: The time that is written.
        accept_other_state: Open a store that was moved, copied or restored too.

    Raises:
        StoreError: this orch may not change the tables, another state than the last one lies there, or no backup can
            be written.
    """
    rows = read_usable_rows(database, accept_other_state=accept_other_state)
    if rows is None or parse_versions(rows).tables < SCHEMA_VERSION:
        create_or_migrate(database, at)
        rows = read_rows(database)
    assert rows is not None  # noqa: S101  # the tables exist now
    return OpenedTables(
        installation=rows[INSTALLATION],
        incarnation=int(rows[INCARNATION]),
        version=parse_versions(rows).tables,
    )


def read_usable_rows(database: Database, *, accept_other_state: bool = False) -> dict[str, str] | None:
    """Return the rows of meta, or None when there are no tables yet. Changes nothing.

    The arguments are those of `open_tables`.

    Raises:
        StoreError: this orch may not change the tables, or another state than the last one lies there.
    """
    seen = read_witnesses(database.location)
    rows = read_rows(database)
    if rows is not None:
        _refuse(database, rows)
        if not accept_other_state:
            refuse_other_state(database, rows, seen)
    return rows


def read_rows(database: Database) -> dict[str, str] | None:
    """Return the rows of meta, or None when there are no tables yet."""
    with database.reading() as tx:
        return read_meta(tx) if inspect(tx).has_table("meta") else None


def _refuse(database: Database, rows: Mapping[str, str]) -> None:
    """Raise StoreError for tables that this orch may not change, or changes only when a person says so."""
    refuse_other_version(database, rows)
    place, versions = describe_location(database.location), parse_versions(rows)
    refuse_replaced(place, rows)
    if versions.tables < SCHEMA_VERSION and not database.is_file:
        raise older_store_error(place, versions.tables)


def refuse_other_version(database: Database, rows: Mapping[str, str]) -> None:
    """Raise StoreError for tables that no command of this orch may change, by their rows of meta."""

    def list_open() -> list[str]:
        with database.reading() as tx:
            return [str(name) for name in tx.execute(text(OPEN_CLUSTERS)).scalars()]

    place, versions = describe_location(database.location), parse_versions(rows)
    refuse_earlier(place, rows, list_open)
    if versions.writer > SCHEMA_VERSION:
        raise newer_store_error(place, versions.tables)


def create_or_migrate(database: Database, at: float) -> None:
    """Bring the tables to the version of this orch, in one transaction under a lock."""
    with database.writing() as tx:
        lock_tables(tx)
        tables = inspect(tx).get_table_names()
        if "meta" not in tables:
            if tables and isinstance(database.location, Path):
                place = str(database.location)
                raise StoreError(
                    f"{place} belongs to another program",
                    f"it has the table {tables[0]}",
                    f"move {place} away, or set ORCH_HOME to another folder",
                )
            metadata.create_all(tx, checkfirst=False)
            write_meta(tx, INSTALLATION, secrets.token_hex(6))
            write_meta(tx, INCARNATION, "1")
            write_meta(tx, CHAIN, str(Head()))
            write_meta(tx, TIE, read_tie(database).to_json())
        else:  # read again: another process may have migrated while we waited for the lock
            rows = read_meta(tx)
            versions = parse_versions(rows)
            if versions.tables >= SCHEMA_VERSION:
                return
            if isinstance(database.location, Path):
                _keep_backup(database.location)
            for number in range(versions.tables + 1, SCHEMA_VERSION + 1):
                STEPS[number](tx, at)
        if tx.dialect.name == "postgresql":
            keep_events(tx)
        for key, value in ((VERSION, SCHEMA_VERSION), (MIN_READER, OLDEST_READER), (MIN_WRITER, OLDEST_WRITER)):
            write_meta(tx, key, str(value))
        tx.commit()


def keep_events(tx: Connection) -> None:
    """Make PostgreSQL refuse every change of an event, whoever asks for it."""
    for statement in _KEEP_EVENTS:
        tx.exec_driver_sql(statement)


def lock_tables(tx: Connection) -> None:
    """Keep other processes from creating, migrating or replacing the tables until the transaction ends."""
    if tx.dialect.name == "postgresql":
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _keep_backup(database: Path) -> None:
    """Copy the last committed state, completely or not at all, while we hold the write lock."""
    backup = backup_path(database)
    try:
        copy_committed_state(database, backup)
    except (OSError, sqlite3.Error) as error:  # an unfinished copy is removed by the next attempt
        raise StoreError(
            f"the store {database} must be upgraded, and its backup cannot be written",
            str(error),
            f"free space or make {database.parent} writable, then repeat the command; nothing was changed",
        ) from error


_KEEP_EVENTS = (
    """CREATE OR REPLACE FUNCTION orch_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'events are only added: %% is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$""",
    "DROP TRIGGER IF EXISTS events_are_kept ON events",
    """CREATE TRIGGER events_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON events
FOR EACH STATEMENT EXECUTE FUNCTION orch_refuse_change()""",
)

# By the version to which a step leads from the one before.
STEPS: dict[int, Callable[[Connection, float], None]] = {}
