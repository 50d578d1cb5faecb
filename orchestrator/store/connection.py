"""Opening the database and talking to it: a SQLite file that survives power loss, or PostgreSQL for a team.

Every failure of the driver leaves here as a StoreError that says what to do.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import UserError
from orchestrator.store.failures import StoreError, file_failure, refuse_cut, server_failure
from orchestrator.store.location import Location

BUSY_SECONDS = 20.0  # how long one transaction waits for another
IDLE_SECONDS = 30.0  # how long PostgreSQL lets a client that was stopped midway keep the others out
PATIENCE = 20.0  # how long a store that was open before may be away, such as a server that restarts
_READING = "orch_reading"


class Database:
    """One open store. Safe for several threads: each block has a connection of its own."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.is_file = isinstance(location, Path)
        self.known_good = False  # set by the first success; before it, an absent server is said at once
        self.engine = _file_engine(location) if isinstance(location, Path) else _server_engine(location)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A block of reads. On SQLite it neither waits for a writer nor makes one wait."""
        with self._connection() as tx:
            yield tx.execution_options(**{_READING: True})

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """A transaction. It is rolled back unless `commit` is called inside the block."""
        with self._connection() as tx:
            yield tx

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        try:
            with self._connect() as tx:
                self.known_good = True
                yield tx
        except DBAPIError as error:
            raise self.failure(error) from error

    def _connect(self) -> Connection:
        give_up = time.monotonic() + (PATIENCE if self.known_good and not self.is_file else 0.0)
        while True:
            try:
                return self.engine.connect()
            except DBAPIError:
                if time.monotonic() >= give_up:
                    raise
            time.sleep(0.2)

    def failure(self, error: DBAPIError) -> StoreError:
        cause = error.orig or error
        if isinstance(self.location, Path):
            return file_failure(cause, self.location)
        return server_failure(cause, self.location, lost=error.connection_invalidated)


def _file_engine(location: Path) -> Engine:
    try:
        location.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"the store {location} cannot be made", str(error), "set ORCH_HOME to a folder that you may write"
        ) from error
    refuse_cut(location)
    engine = create_engine(f"sqlite:///{location}", connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True)
    event.listen(engine, "connect", _file_settings)
    event.listen(engine, "begin", _begin)
    return engine


def _file_settings(connection: Any, _record: Any) -> None:
    assert isinstance(connection, sqlite3.Connection)  # noqa: S101  # only registered for SQLite engines
    connection.isolation_level = None  # SQLAlchemy's BEGIN is ours to word
    _use_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Changing the journal's mode is refused at once while another process does it; SQLite's own wait is not used."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                raise
            time.sleep(0.02)
        else:
            return


def _begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _server_engine(location: str) -> Engine:
    url = make_url(location).set(drivername="postgresql+psycopg")
    settings = {"connect_timeout": 10, "application_name": "orch", "prepare_threshold": None}
    settings = {name: value for name, value in settings.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            connect_args=settings,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=2,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise UserError(
            "a store on PostgreSQL needs the driver psycopg", str(error), "pip install 'orch[server]'"
        ) from error
    event.listen(engine, "connect", _server_settings)
    return engine


def _server_settings(connection: Any, _record: Any) -> None:
    """synchronous_commit: what we were told is committed must survive the server's power loss."""
    connection.execute(
        f"SELECT set_config('lock_timeout', '{BUSY_SECONDS * 1000:.0f}ms', false), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS * 1000:.0f}ms', false), "
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
    )
    connection.commit()
