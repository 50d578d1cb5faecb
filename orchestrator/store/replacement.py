"""The replacement of the store by a restored one: refused while an orch works with it; what was there is kept.

A file is copied aside, retired, and replaced atomically: at no moment is there no store, in which a command that comes
in between would begin another one. In a retired file no command changes a row any more, also none that had opened it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, inspect

from orchestrator.errors import ConflictError
from orchestrator.store.backup_file import is_empty
from orchestrator.store.connection import BUSY_SECONDS, Database
from orchestrator.store.failures import DamagedStoreError, StoreError
from orchestrator.store.file_copy import copy_committed_state
from orchestrator.store.leases import find_live_holders
from orchestrator.store.location import Location, describe_location
from orchestrator.store.meta_rows import read_meta, write_meta
from orchestrator.store.migrations import create_or_migrate, refuse_other_version
from orchestrator.store.schema import meta, metadata
from orchestrator.store.version import REPLACED

_BESIDE = ("-wal", "-shm")


def refuse_replacement(location: Location, *, replace_present: bool) -> None:
    """Raise for a store that may not be replaced now. Changes nothing.

    Args:
        location: of the store.
        replace_present: a store that is not empty is replaced, too.

    Raises:
        ConflictError: it is not empty, or an orch works with it.
    """
    if isinstance(location, Path) and not has_content(location):
        return
    try:
        with closing(Database(location)) as database, database.reading() as tx:
            refuse_present(tx, database, replace_present=replace_present)
    except DamagedStoreError:
        if not replace_present:
            raise not_empty_error(location) from None


def refuse_present(tx: Connection, database: Database, *, replace_present: bool) -> None:
    """Do as `refuse_replacement`, inside a transaction."""
    tables = inspect(tx).get_table_names()
    if "meta" not in tables:  # none, or those of another program
        if tables and database.is_file and not replace_present:
            raise not_empty_error(database.location)
        return
    rows = read_meta(tx)
    refuse_other_version(database, rows)
    if not replace_present and not is_empty(tx):
        raise not_empty_error(database.location)
    if REPLACED not in rows:  # else no orch works with it
        _refuse_holders(tx, database)


def replace_file(location: Path, staged: Path, at: float) -> str:
    """Put a file in the place of the store and return where the present one is kept; "" for none, or an empty one.

    Args:
        location: of the store.
        staged: the new one, complete and on the disk, in the same folder.
        at: the time, in epoch seconds, from which the name of the kept copy is made.

    Raises:
        ConflictError: an orch works with the present store.
        StoreError: it cannot be kept.
    """
    kept = _keep_and_retire(location, location.with_name(f"{location.name}.replaced-{int(at)}"), at)
    for ending in _BESIDE:
        location.with_name(location.name + ending).unlink(missing_ok=True)
    staged.replace(location)
    return kept


def has_content(location: Path) -> bool:
    """Return whether there is a file that is not empty."""
    return location.exists() and location.stat().st_size > 0


def not_empty_error(location: Location) -> ConflictError:
    """Return the error for a store that would be replaced without being asked for."""
    return ConflictError(
        f"the store {describe_location(location)} is not empty",
        "a backup does not replace what is there unless you say so",
        "add --replace: the present store is kept aside",
    )


def drop_or_move_tables(tx: Connection, location: str, at: float) -> str:
    """Make place for restored tables on PostgreSQL; return where the present ones are kept, "" if they are empty."""
    names = [name for name in inspect(tx).get_table_names() if name in metadata.tables]
    if not names:
        return ""
    if is_empty(tx):
        metadata.drop_all(tx)
        return ""
    aside = f"orch_replaced_{int(at)}"
    tx.exec_driver_sql(f"CREATE SCHEMA {aside}")
    for name in names:
        tx.exec_driver_sql(f"ALTER TABLE {name} SET SCHEMA {aside}")
    return f"schema {aside} of {describe_location(location)}"


def _refuse_holders(tx: Connection, database: Database) -> None:
    """Raise ConflictError while an orch works with the store."""
    holders = find_live_holders(tx, database)
    if holders:
        step = f"wait until it ends; an engine: kill {holders[0].pid}   then the same command again"
        why = f"in use by {holders[0]}"
        raise ConflictError(f"the store {describe_location(database.location)} is not replaced now", why, step)


def _keep_and_retire(location: Path, aside: Path, at: float) -> str:
    try:
        kept = _retire_store(location, aside, at)
    except DamagedStoreError:
        kept = None
    except (OSError, sqlite3.Error) as error:
        step = f"free space (df -h {location.parent}), then repeat the command; nothing was changed"
        raise StoreError(f"the store {location} cannot be kept as {aside.name}", str(error), step) from error
    return _rename(location, aside) if kept is None else kept


def _retire_store(location: Path, aside: Path, at: float) -> str | None:
    """Return what `_retire` returns, or None for the file of another program."""
    with closing(Database(location)) as database:
        with database.reading() as tx:
            tables = inspect(tx).get_table_names()
        if not tables:  # so that a command that comes now finds a retired store, and makes none
            create_or_migrate(database, at)
        elif "meta" not in tables:
            return None
        kept = _retire(database, location, aside)
    _empty_log(location)
    return kept


def _retire(database: Database, file: Path, aside: Path) -> str:
    """Refuse all later changes of a file, after a copy without that, and return where the copy is.

    No change comes between the two. Of an empty store there is no copy.

    Args:
        database: the open file.
        file: its path.
        aside: where the copy goes.

    Raises:
        ConflictError: an orch works with the store.
        OSError, sqlite3.Error: the copy cannot be written; nothing was changed.
    """
    with database.writing() as tx:
        rows = read_meta(tx)
        if REPLACED in rows:  # by a command that was killed before it replaced the file
            return rows[REPLACED]
        _refuse_holders(tx, database)
        kept = "" if is_empty(tx) else str(aside)
        if kept:
            copy_committed_state(file, aside)
        _add_triggers(tx)
        write_meta(tx, REPLACED, kept)
        tx.commit()
        return kept


def _add_triggers(tx: Connection) -> None:
    """Refuse changes of commands, too, that had opened the file before."""
    present = set(inspect(tx).get_table_names())  # a file that is to be upgraded has fewer
    for table in metadata.sorted_tables:
        if table is meta or table.name not in present:
            continue
        for verb in ("INSERT", "UPDATE", "DELETE"):
            tx.exec_driver_sql(
                f"CREATE TRIGGER replaced_{table.name}_{verb.lower()} BEFORE {verb} ON {table.name} "
                "BEGIN SELECT RAISE(ABORT, 'it was replaced by a backup'); END"
            )


def _empty_log(location: Path) -> None:
    """Bring the triggers from the log into the file itself: the log is deleted before the file is replaced."""
    with closing(sqlite3.connect(location, timeout=BUSY_SECONDS)) as raw:
        busy, *_ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        why = "another process has been reading it for too long"
        raise ConflictError(f"the store {location} is not replaced now", why, "the same command again completes it")


def _rename(location: Path, aside: Path) -> str:
    """Move a file that cannot be read, or that is no store, as it is."""
    for ending in (*_BESIDE, ""):
        beside = location.with_name(location.name + ending)
        if beside.exists():
            beside.replace(aside.with_name(aside.name + ending))
    return str(aside)
