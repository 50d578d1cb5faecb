"""What a database's failure means for the user, and what to do now. Light: no database library is imported."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.store.location import Location, described, without_secrets

PAGE = 4096  # bytes; SQLite's page size where none is asked for (https://www.sqlite.org/pgszchng2016.html, 2026-11)


class StoreError(OrchError):
    """The durable memory cannot be read or written. The command can be given again when the cause is gone."""

    code = "store"


def backup_of(database: Path) -> Path:
    """The copy that is made before a new version of orch changes the tables."""
    return database.with_name(database.name + ".bak")


def file_failure(error: BaseException, database: Path, *, reading: bool = False) -> StoreError:
    """A failure of SQLite, told by its error name. https://www.sqlite.org/rescode.html (2026-11)."""
    name = str(getattr(error, "sqlite_errorname", ""))
    what = f"the store {database} cannot be {'read' if reading else 'used'}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(what, "another orch has been writing for too long", "look for a stopped orch: ps aux")
    if name.startswith("SQLITE_FULL"):
        return StoreError(what, "the disk is full", _space(database))
    if name.startswith("SQLITE_READONLY") or (name.startswith("SQLITE_CANTOPEN") and _closed(database)):
        next_step = f"make {database.parent} writable for you, or set ORCH_HOME to another folder"
        return StoreError(what, "the file or its folder is read-only", next_step)
    if name.startswith("SQLITE_IOERR"):
        return StoreError(what, f"the disk failed or is full ({name})", _space(database))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(database, str(error), reading=reading)
    return StoreError(what, str(error), "move it away, or set ORCH_HOME to another folder")


def damaged(database: Path, why: str, *, reading: bool = False) -> StoreError:
    """The file is no whole database any more. Says whether there is a backup, and how to go on without one."""
    what = f"the store {database} cannot be {'read' if reading else 'used'}: it is damaged"
    backup = backup_of(database)
    away = f"mv {database} {database}.damaged; rm -f {database}-wal {database}-shm"
    if backup.exists():
        return StoreError(
            what, why, f"{away}; cp {backup} {database}\nthe backup is from the last upgrade: orch status"
        )
    return StoreError(what, why, f"{away}\nthere is no backup; machines may still run: look in the provider's console")


def refuse_cut(database: Path, *, reading: bool = False) -> None:
    """Raise StoreError for a file that was cut inside a page: SQLite would take the missing rest for zeros.

    With a log beside it the file may be in the middle of an update, and SQLite completes it. The file is not opened
    for this: closing it would drop the locks that other connections of this process hold on it
    (https://www.sqlite.org/howtocorrupt.html, section 2.2, 2026-11).
    """
    try:
        size = database.stat().st_size
        log = database.with_name(database.name + "-wal")
        if size == 0 or (log.exists() and log.stat().st_size > 0):
            return
    except OSError:
        return  # absent or closed: the real access says which
    if size % PAGE:
        raise damaged(database, f"it was cut short: {size} bytes are no whole number of pages", reading=reading)


def server_failure(error: BaseException, location: Location, *, lost: bool = False) -> StoreError:
    """A failure of PostgreSQL, told by its SQLSTATE. lost: the connection is gone.

    https://www.postgresql.org/docs/17/errcodes-appendix.html (2026-11).
    """
    state = str(getattr(error, "sqlstate", None) or "")
    place = described(location)
    said = without_secrets(" ".join(str(error).split("\n")[0].split()), location)
    if state == "55P03":
        return StoreError(f"the store {place} is locked", "another orch has been writing for too long", "orch status")
    if state == "53100":
        return StoreError(f"the store {place} cannot be written", "the server's disk is full", "free space there")
    if state == "25006":
        return StoreError(f"the store {place} is read-only", said, "point ORCH_STORE to the primary server")
    if state.startswith("28") or "authentication failed" in said:
        return StoreError(f"the store {place} refuses us", said, "correct the user and password in ORCH_STORE")
    if lost or not state or state.startswith(("08", "57P")):
        return StoreError(
            f"the store {place} cannot be reached",
            said,
            "give the command again when the server answers: it goes on where it was",
        )
    return StoreError(f"the store {place} cannot be used", said, "check the database and the rights of its user")


def _space(database: Path) -> str:
    return f"free space (df -h {database.parent}), then give the command again: it goes on where it was"


def _closed(database: Path) -> bool:
    return not os.access(database.parent, os.W_OK)
