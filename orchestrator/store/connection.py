"""Opening the database: a SQLite file that survives power loss, or PostgreSQL for a team."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

from orchestrator.errors import OrchError
from orchestrator.store.schema import metadata

BUSY_SECONDS = 20.0


def connect(location: Path | str) -> Engine:
    """Open, making the tables where they are missing. Raises OrchError when the file cannot be used."""
    if isinstance(location, Path):
        location.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        engine = create_engine(f"sqlite:///{location}", connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "begin", _begin_immediate)
    else:
        engine = create_engine(location)
    try:
        metadata.create_all(engine)
    except DatabaseError as error:
        raise OrchError(
            f"the store {location} cannot be used", str(error.orig), "move it away, or set ORCH_HOME to another folder"
        ) from error
    return engine


def _sqlite_settings(connection: Any, _record: Any) -> None:
    assert isinstance(connection, sqlite3.Connection)  # noqa: S101  # only registered for SQLite engines
    connection.isolation_level = None  # SQLAlchemy's BEGIN is ours to word
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
