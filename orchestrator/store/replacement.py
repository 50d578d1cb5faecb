"""The replacement of the store by a restored one: refused while an orch works with it; what was there is kept.

A file is copied aside, sealed, and replaced atomically: at no moment is there no store, in which a command that comes
in between would begin another one.
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
from orchestrator.store.location import Location, describe_location
from orchestrator.store.meta_rows import SEALED, read_meta
from orchestrator.store.migrations import create_or_migrate, refuse_other_version
from orchestrator.store.schema import metadata
from orchestrator.store.sealing import refuse_holders, seal_replaced

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
    if SEALED not in rows:  # else no orch works with it
        refuse_holders(tx, database, "replaced")


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
    kept = _keep_and_seal(location, location.with_name(f"{location.name}.replaced-{int(at)}"), at)
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


def _keep_and_seal(location: Path, aside: Path, at: float) -> str:
    try:
        kept = _seal_store(location, aside, at)
    except DamagedStoreError:
        kept = None
    except (OSError, sqlite3.Error) as error:
        step = f"free space (df -h {location.parent}), then repeat the command; nothing was changed"
        raise StoreError(f"the store {location} cannot be kept as {aside.name}", str(error), step) from error
    return _rename(location, aside) if kept is None else kept


def _seal_store(location: Path, aside: Path, at: float) -> str | None:
    """Return what `seal_replaced` returns, or None for the file of another program."""
    with closing(Database(location)) as database:
        with database.reading() as tx:
            tables = inspect(tx).get_table_names()
        if not tables:  # so that a command that comes now finds a sealed store, and makes none
            create_or_migrate(database, at)
        elif "meta" not in tables:
            return None
        kept = seal_replaced(database, location, aside)
    _empty_log(location)
    return kept


def _empty_log(location: Path) -> None:
    """Bring the seal from the log into the file itself: the log is deleted before the file is replaced."""
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
