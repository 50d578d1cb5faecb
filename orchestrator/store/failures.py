"""The errors of a database, translated for the user with the next step. No database library is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.messages import join_some
from orchestrator.store.location import Location, describe_location, mask_secrets

# of libpq, in fe-secure-openssl.c and fe-connect.c of PostgreSQL 17
_UNVERIFIED = re.compile("certificate|does not support SSL", re.IGNORECASE)
_SHOWN = 3  # slices that an error names
PAGE = 4096  # bytes; SQLite's page size where none is asked for (https://www.sqlite.org/pgszchng2016.html, 2026-11)


class StoreError(OrchError):
    """The store cannot be read or written. The command may be repeated when the cause is removed."""

    code = "store"


class DamagedStoreError(StoreError):
    """The file is damaged: what it holds cannot be read, or not all of it."""


def backup_path(database: Path) -> Path:
    """Return the path of the copy that is made before a new version of orch changes the tables."""
    return database.with_name(database.name + ".bak")


def translate_file_error(error: BaseException, database: Path, *, reading: bool = False) -> StoreError:
    """Return the error for a failure of SQLite, by its error name.

    Source: https://www.sqlite.org/rescode.html (2026-11).
    """
    name = str(getattr(error, "sqlite_errorname", ""))
    what = f"the store {database} cannot be {'read' if reading else 'used'}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(what, "another orch has been writing for too long", "find a suspended orch: ps aux")
    if name.startswith("SQLITE_FULL"):
        return StoreError(what, "the disk is full", _space(database))
    if name.startswith("SQLITE_READONLY") or (name.startswith("SQLITE_CANTOPEN") and _closed(database)):
        next_step = f"make {database.parent} writable for you, or set ORCH_HOME to another folder"
        return StoreError(what, "the file or its folder is read-only", next_step)
    if name.startswith("SQLITE_IOERR"):
        return StoreError(what, f"the disk failed or is full ({name})", _space(database))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_file_error(database, str(error), reading=reading)
    if name == "SQLITE_CONSTRAINT_TRIGGER":  # one of `replacement`, which has the reason as its text
        step = "repeat the command: it opens the present store   (orch store shows where that is)"
        return StoreError(f"the store {database} is not changed any more", str(error), step)
    return StoreError(what, str(error), "move it away, or set ORCH_HOME to another folder")


def damaged_file_error(database: Path, why: str, *, reading: bool = False) -> DamagedStoreError:
    """Return the error for a damaged file, with the commands that restore its backup or continue without one.

    Either way machines may run that the new store does not know: `orch recover` finds them.
    """
    what = f"the store {database} cannot be {'read' if reading else 'used'}: it is damaged"
    backup = backup_path(database)
    away = f"mv {database} {database}.damaged; rm -f {database}-wal {database}-shm"
    beside = _describe_records_beside(database)
    if backup.exists():
        restored = f"{away}; cp {backup} {database}; orch store restored"
        return DamagedStoreError(
            what, why, f"{restored}\nthe backup is from the last upgrade{beside}; machines: orch recover"
        )
    return DamagedStoreError(
        what, why, f"{away}\nthere is no backup{beside}; find machines that still run: orch recover"
    )


def _describe_records_beside(database: Path) -> str:
    """Return which slices have keys beside the store: their machines can still be entered."""
    try:
        slices = sorted(path.name for path in (database.parent / "keys").iterdir() if path.is_dir())
    except OSError:
        slices = []
    if not slices:
        return ", and no keys of slices lie beside it"
    return f", but keys lie beside it, in {database.parent / 'keys'}: of {join_some(slices, _SHOWN)}"


def refuse_truncated_file(database: Path, *, reading: bool = False) -> None:
    """Raise StoreError for a file that ends inside a page: SQLite would read the missing rest as zeros.

    A file with a log beside it may be in the middle of an update, which SQLite completes. The file is not opened
    here: closing it would drop the locks that other connections of this process hold on it
    (https://www.sqlite.org/howtocorrupt.html, section 2.2, 2026-11).
    """
    try:
        size = database.stat().st_size
        log = database.with_name(database.name + "-wal")
        if size == 0 or (log.exists() and log.stat().st_size > 0):
            return
    except OSError:
        return  # absent or not readable: opening it reports which
    if size % PAGE:
        raise damaged_file_error(
            database, f"it was cut short: {size} bytes are no whole number of pages", reading=reading
        )


def translate_server_error(error: BaseException, location: Location, *, lost: bool = False) -> StoreError:
    """Return the error for a failure of PostgreSQL, by its SQLSTATE.

    Source: https://www.postgresql.org/docs/17/errcodes-appendix.html (2026-11).

    Args:
        error: what the driver raised.
        location: of the store.
        lost: the connection is lost.
    """
    state = str(getattr(error, "sqlstate", None) or "")
    place = describe_location(location)
    message = mask_secrets(" ".join(str(error).split("\n")[0].split()), location)
    if state == "55P03":
        return StoreError(f"the store {place} is locked", "another orch has been writing for too long", "orch status")
    if state == "53100":
        return StoreError(f"the store {place} cannot be written", "the server's disk is full", "free space there")
    if state == "25006":
        return StoreError(f"the store {place} is read-only", message, "point ORCH_STORE to the primary server")
    if _UNVERIFIED.search(message):
        return StoreError(
            f"the server of the store {place} is not verified, so nothing was sent to it",
            message,
            "name its certificate authority: ORCH_STORE=postgresql://...?sslrootcert=FILE   (docs/team.md)",
        )
    if state in ("42501", "3F000"):  # no right, or no schema that this login may use
        return refused_login_error(message, location)
    if state.startswith("28") or "authentication failed" in message:
        return StoreError(
            f"the store {place} refuses this user",
            message,
            "correct the user and password: ORCH_STORE, ORCH_STORE_PASSWORD_FILE, or ~/.pgpass\n"
            "or, as a member of a team: unset ORCH_STORE; export ORCH_SERVER=https://...",
        )
    if lost or not state or state.startswith(("08", "57P")):
        return StoreError(
            f"the store {place} cannot be reached",
            message,
            "repeat the command when the server answers: it resumes where it was",
        )
    return StoreError(f"the store {place} cannot be used", message, "check the database and the rights of its user")


def refused_login_error(why: str, location: Location) -> StoreError:
    """Return the error for a login of PostgreSQL without the right for a statement."""
    return StoreError(
        f"this login may not do that in the store {describe_location(location)}",
        why,
        "use the login that owns the tables: it is the one of all servers   (docs/team.md)",
    )


def _space(database: Path) -> str:
    return f"free space (df -h {database.parent}), then repeat the command: it resumes where it was"


def _closed(database: Path) -> bool:
    return not os.access(database.parent, os.W_OK)
