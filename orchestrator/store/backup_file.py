"""A backup as one file: the rows of a store in a SQLite file, from one consistent read, whatever the database is.

The run keys are left out.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from orchestrator.distribution import install_command
from orchestrator.errors import StorageError
from orchestrator.private_files import open_private
from orchestrator.store.apply_change import CHAIN
from orchestrator.store.audited import Head
from orchestrator.store.backup_note import BackupHead, earlier_backup_error
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError, translate_file_error
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.meta_rows import read_meta
from orchestrator.store.read import Reader
from orchestrator.store.schema import events, metadata, progress, run_keys
from orchestrator.store.version import SCHEMA_VERSION, describe_earlier

_BATCH = 1000  # rows that are written together


def write_backup(database: Database, target: Path, at: float) -> BackupHead:
    """Copy an open store into a new file and return its head.

    Raises:
        StoreError: the store cannot be read, or the copy cannot be written.
    """
    try:
        with open(target, "xb", opener=open_private):
            pass
        if isinstance(database.location, Path):
            _copy_file(database.location, target)
        else:
            _copy_rows(database, target)
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written", str(error), f"df -h {target.parent}") from error
    except sqlite3.Error as error:
        raise translate_file_error(error, target) from error
    return read_head(target, at)


def _copy_file(source: Path, target: Path) -> None:
    """Copy by SQLite's backup: the last committed state, whatever others write meanwhile."""
    with (
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
    remove_run_keys(target)


def _copy_rows(database: Database, target: Path) -> None:
    copy = Database(target)
    try:
        with database.engine.connect() as connection, copy.writing() as into:
            tx = connection.execution_options(isolation_level="REPEATABLE READ")  # one view of all tables
            metadata.create_all(into, checkfirst=False)
            copy_rows(tx, into)
            tx.rollback()
            into.commit()
    finally:
        copy.close()
    with closing(sqlite3.connect(target)) as raw:
        raw.execute("PRAGMA journal_mode=DELETE")


def remove_run_keys(file: Path) -> None:
    """Remove the run keys from a copy of a store: they are secrets, and a bucket neither gets nor gives them."""
    with closing(sqlite3.connect(file)) as raw:
        raw.execute(f"DELETE FROM {run_keys.name}")  # noqa: S608  # a constant
        raw.commit()
        raw.execute("VACUUM")  # deleted rows stay in the pages until then


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows but the run keys and what engines were doing into the empty tables of another database."""
    for table in metadata.sorted_tables:
        if table in (run_keys, progress):
            continue
        for rows in _batches(source, select(table)):
            target.execute(insert(table), rows)


def _batches(source: Connection, query: Any) -> Iterator[list[dict[str, Any]]]:
    found = source.execution_options(yield_per=_BATCH).execute(query).mappings()
    for rows in found.partitions(_BATCH):
        yield [{**row} for row in rows]


def read_head(file: Path, at: float) -> BackupHead:
    """Return the head of a copy of a store, read from the copy itself."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    with Reader(file) as reader:
        head = reader.head()
        return BackupHead(
            file=file.name,
            sha256=digest,
            installation=reader.installation() or "",
            incarnation=reader.incarnation,
            seq=head.seq,
            hash=head.hash,
            version=reader.version,
            time=at,
        )


def verify_backup(file: Path, expected: BackupHead | None) -> BackupHead:
    """Check digest, pages, chain and rows of a backup, and return its head. The file is not changed.

    Args:
        file: the copy.
        expected: the head that lies beside it, None for a file alone.

    Raises:
        StorageError: it is damaged, of another store than its head says, or of a newer orch.
    """
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    step = "use an older one: orch storage ls -r   lists them; give its URI to orch store restore"
    if expected is not None and digest != expected.sha256:
        raise StorageError("the backup is damaged", f"its SHA-256 is {digest[:16]}…, not {expected.sha256[:16]}…", step)
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as raw:
        try:
            program = raw.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchone()
            has_meta = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
            versions = dict(raw.execute("SELECT key, value FROM meta").fetchall()) if has_meta else {}
        except sqlite3.Error as error:
            raise translate_file_error(error, file) from error
    if program is not None:  # a trigger would undo what the restoration changes
        raise StorageError("that is not a backup of a store", f"it contains a {program[0]}: {program[1]!r}", step)
    if old := describe_earlier(versions):
        raise earlier_backup_error(old)
    faults = find_store_faults(file)
    if faults:
        raise StorageError("the backup is damaged", faults[0], step)
    found = read_head(file, expected.time if expected is not None else file.stat().st_mtime)
    if found.version > SCHEMA_VERSION:
        why = f"its tables have version {found.version}, this orch writes version {SCHEMA_VERSION}"
        raise StorageError("the backup is of a newer orch", why, f"upgrade orch: {install_command('', '--upgrade')}")
    if not found.installation:
        raise StorageError("that is not a backup of a store", f"{file} has no installation", step)
    if expected is not None and (found.installation, found.order, found.hash) != (
        expected.installation, expected.order, expected.hash,
    ):  # fmt: skip
        raise StorageError("the backup is of another store than its head says", f"event {found.seq}", step)
    return found


def is_empty(tx: Connection) -> bool:
    """Return whether the tables hold nothing that could be lost."""
    if Head.parse(read_meta(tx).get(CHAIN, str(Head()))).seq:
        return False
    return tx.execute(select(events.c.seq).limit(1)).first() is None
