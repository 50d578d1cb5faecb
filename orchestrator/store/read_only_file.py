"""Connections that only read a SQLite file, also where the folder is not writable or the disk is full."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_UNWRITABLE = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR_SHM")


def open_read_only(database: Path) -> sqlite3.Connection:
    """Open a read-only connection.

    In a folder that is not writable, or on a full disk, SQLite reads a file without its log only as immutable. That is
    right where no -wal file exists: then no process has the store open for writing. Where a killed command has left
    one, a copy of both is read.
    """
    uri = f"{database.as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.DatabaseError as error:
        closed = str(getattr(error, "sqlite_errorname", "")).startswith(_UNWRITABLE)
        if closed:
            connection.close()
            log = database.with_name(database.name + "-wal")
            connection = _open_copy(database, log) if log.exists() else sqlite3.connect(f"{uri}&immutable=1", uri=True)
    return connection


def _open_copy(database: Path, log: Path) -> sqlite3.Connection:
    """Open a copy of a file and its log in memory, or where temporary files are; it ends with the connection."""
    import shutil  # these two cost a light command 5 ms, and are hardly ever needed
    import tempfile

    memory = Path("/dev/shm")  # noqa: S108  # tmpfs; the folder in it is new, and this user's alone
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for path in (database, log):
            shutil.copyfile(path, Path(folder, path.name))
        connection = sqlite3.connect(Path(folder, database.name))
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    return connection
