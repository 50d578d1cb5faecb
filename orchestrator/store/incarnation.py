"""Find out whether a store was copied, moved or restored from an older state since orch last changed it.

Where a mark of `other_state` differs, machines may run that the store does not know, or another copy may drive the same
ones: nothing is changed until a person says which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.store.apply_change import CHAIN
from orchestrator.store.audited import Head
from orchestrator.store.connection import Database, refuse_damaged_pages
from orchestrator.store.meta_rows import INCARNATION
from orchestrator.store.other_state import (
    Tie,
    Witness,
    find_other_state,
    find_witness_file,
    other_state_error,
    read_file_tie,
    read_witness_file,
)


def read_tie(database: Database) -> Tie:
    """Return the place in which an open store lies now."""
    if isinstance(database.location, Path):
        return read_file_tie(database.location)
    oid = _read_number(database, "SELECT oid FROM pg_database WHERE datname = current_database()")
    return Tie(system=_read_number(database, "SELECT system_identifier FROM pg_control_system()"), database=oid)


def _read_number(database: Database, query: str) -> str:
    """Return one value, or "" where this user of the database may not read it."""
    try:
        with database.peeking() as tx:
            return str(tx.execute(text(query)).scalar())
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") == "42501":  # insufficient_privilege
            return ""
        raise database.translate_error(error) from error


def refuse_other_state(database: Database, rows: Mapping[str, str], seen: Mapping[str, Witness]) -> None:
    """Raise OtherStateError for a store that lies in another place than it was made, or is older than was seen here.

    Args:
        database: The open store.
        rows: Its rows of meta.
        seen: What `read_witnesses` returned before the rows were read: others may write meanwhile.

    Raises:
        OtherStateError: It was copied, moved or restored.
        DamagedStoreError: And its file is damaged, so none of the commands for such a store would work.
    """
    problem = find_other_state(rows, read_tie(database), seen, lambda seq: find_hash(database, seq))
    if problem:
        if isinstance(database.location, Path):
            with database.reading() as tx:
                refuse_damaged_pages(tx, database.location)
        raise other_state_error(database.location, problem)


def find_hash(database: Database, seq: int) -> str:
    """Return the hash of an event, "" for none."""
    with database.reading() as tx:
        return str(tx.execute(text("SELECT hash FROM events WHERE seq = :seq"), {"seq": seq}).scalar() or "")


def keep_witness(database: Database, installation: str) -> None:
    """Note the newest event of the store, for the next command on this computer. A cache: it is never a failure."""
    with suppress(OSError, DBAPIError, ValueError, KeyError):
        with database.peeking() as tx:
            query = text("SELECT key, value FROM meta WHERE key IN (:a, :b)")
            rows = {str(row.key): str(row.value) for row in tx.execute(query, {"a": CHAIN, "b": INCARNATION})}
        head = Head.parse(rows[CHAIN])
        seen = Witness(incarnation=int(rows[INCARNATION]), seq=head.seq, hash=head.hash)
        file = find_witness_file(database.location)
        known = read_witness_file(file)
        if known.get(installation) != seen:
            known[installation] = seen
            make_private_folder(file.parent)
            write_whole(file, json.dumps({name: asdict(one) for name, one in known.items()}), flush=False)
