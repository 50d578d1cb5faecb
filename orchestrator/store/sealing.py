"""The seal of a file whose records are elsewhere from now on: no orch changes it any more.

Triggers refuse the changes of commands, too, that had opened the file before.
"""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Connection, inspect, select

from orchestrator.errors import ConflictError
from orchestrator.store.backup_file import is_empty
from orchestrator.store.connection import Database
from orchestrator.store.file_copy import copy_committed_state
from orchestrator.store.leases import find_live_holders
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import SEALED, read_meta, write_meta
from orchestrator.store.schema import meta, metadata
from orchestrator.store.version import refuse_sealed


def seal(database: Database, target: str) -> None:
    """Seal a file for one target. Sealed for the same target before, it stays so.

    Args:
        database: the file.
        target: where its records go, as `describe_location` writes it; with which login does not matter.

    Raises:
        ConflictError: an orch works with the store.
        StoreError: it is sealed for another target.
    """
    with database.writing() as tx:
        rows = read_meta(tx)
        if SEALED in rows:
            refuse_other_target(database, rows, target)
            return
        refuse_holders(tx, database, "imported")
        _add_triggers(tx, "the records of this store were imported into another one")
        write_meta(tx, SEALED, json.dumps({"to": target, "moved": False}))
        tx.commit()


def refuse_other_target(database: Database, rows: dict[str, str], target: str) -> None:
    """Raise StoreError for a file that is sealed for another target, by its rows of meta."""
    sealed = json.loads(rows[SEALED])
    if sealed.get("replaced") or _without_login(sealed["to"]) != _without_login(target):
        refuse_sealed(describe_location(database.location), rows)


def _without_login(place: str) -> str:
    """Return a place as `describe_location` writes it: a path, or an address of which the login does not matter."""
    return describe_location(place, login="") if "://" in place else place


def mark_moved(database: Database) -> None:
    """Record that everything has arrived at the target."""
    with database.writing() as tx:
        sealed = json.loads(tx.execute(select(meta.c.value).where(meta.c.key == SEALED)).scalar_one())
        write_meta(tx, SEALED, json.dumps({**sealed, "moved": True}))
        tx.commit()


def seal_replaced(database: Database, file: Path, aside: Path) -> str:
    """Seal a file that a restored store replaces, after a copy that has no seal, and return where that copy is.

    No change comes between the copy and the seal. An empty store is sealed without a copy.

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
        sealed = json.loads(rows.get(SEALED, "{}"))
        if sealed.get("replaced"):  # by a command that was killed before it replaced the file
            return str(sealed["to"])
        refuse_holders(tx, database, "replaced")
        kept = "" if is_empty(tx) else str(aside)
        if kept:
            copy_committed_state(file, aside)
        if not sealed:
            _add_triggers(tx, "it was replaced by a backup")
        write_meta(tx, SEALED, json.dumps({"to": kept, "moved": True, "replaced": True}))
        tx.commit()
        return kept


def refuse_holders(tx: Connection, database: Database, what: str) -> None:
    """Raise ConflictError while an orch works with the store.

    Args:
        tx: a transaction.
        database: the store.
        what: what does not happen to it therefore, such as "imported".
    """
    holders = find_live_holders(tx, database)
    if holders:
        wait = ", with --wait" if what == "imported" else ""
        step = f"wait until it ends{wait}; an engine: kill {holders[0].pid}   then the same command again"
        why = f"in use by {holders[0]}"
        raise ConflictError(f"the store {describe_location(database.location)} is not {what} now", why, step)


def _add_triggers(tx: Connection, why: str) -> None:
    present = set(inspect(tx).get_table_names())  # a file that is to be upgraded has fewer
    for table in metadata.sorted_tables:
        if table is meta or table.name not in present:
            continue
        for verb in ("INSERT", "UPDATE", "DELETE"):
            tx.exec_driver_sql(
                f"CREATE TRIGGER sealed_{table.name}_{verb.lower()} BEFORE {verb} ON {table.name} "
                f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
            )
