"""The seal of a store whose records go to a team's database: no orch, of any version, changes it any more."""

from __future__ import annotations

import json

from sqlalchemy import select

from orchestrator.errors import ConflictError
from orchestrator.store.connection import Database
from orchestrator.store.leases import find_live_holders
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import SEALED, read_meta, write_meta
from orchestrator.store.schema import meta, metadata
from orchestrator.store.version import SCHEMA, refuse_sealed

_NO_VERSION = "1000000"  # no orch has it: those up to version 4 refuse the store


def seal(database: Database, target: str) -> None:
    """Seal a file for one target. Sealed for the same target before, it stays so.

    Triggers refuse changes of commands, too, that had opened the file before.

    Args:
        database: the file.
        target: where its records go, as `describe_location` writes it.

    Raises:
        ConflictError: an orch works with the store.
        StoreError: it is sealed for another target.
    """
    with database.writing() as tx:
        rows = read_meta(tx)
        if SEALED in rows:
            if json.loads(rows[SEALED])["to"] != target:
                refuse_sealed(describe_location(database.location), rows)
            return
        holders = find_live_holders(tx, database)
        if holders:
            why = f"in use by {holders[0]}"
            step = "wait until it ends, with --wait; an engine: kill its process, then repeat the command"
            raise ConflictError(f"the store {describe_location(database.location)} is not imported now", why, step)
        for table in metadata.sorted_tables:
            if table is meta:
                continue
            for verb in ("INSERT", "UPDATE", "DELETE"):
                tx.exec_driver_sql(
                    f"CREATE TRIGGER sealed_{table.name}_{verb.lower()} BEFORE {verb} ON {table.name} "
                    "BEGIN SELECT RAISE(ABORT, 'the records of this store were imported into another one'); END"
                )
        write_meta(tx, SCHEMA, _NO_VERSION)
        write_meta(tx, SEALED, json.dumps({"to": target, "moved": False}))
        tx.commit()


def mark_moved(database: Database) -> None:
    """Record that everything has arrived at the target."""
    with database.writing() as tx:
        sealed = json.loads(tx.execute(select(meta.c.value).where(meta.c.key == SEALED)).scalar_one())
        write_meta(tx, SEALED, json.dumps({**sealed, "moved": True}))
        tx.commit()
