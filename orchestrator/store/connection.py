"""The connection to the database: a SQLite file that survives power loss, or PostgreSQL for a team.

Every error of the driver is translated into a StoreError that names the next step.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Executable, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError

from orchestrator.distribution import install_command
from orchestrator.errors import UserError
from orchestrator.private_files import make_private_folder, open_private
from orchestrator.retries import STORE_CONNECT, STORE_JOURNAL, RetryPolicy
from orchestrator.store.failures import (
    StoreError,
    damaged_file_error,
    refuse_truncated_file,
    translate_file_error,
    translate_server_error,
)
from orchestrator.store.location import Location
from orchestrator.store.password_file import connect_with_passwords
from orchestrator.store.transport import connect_options

BUSY_SECONDS = 20.0  # the longest time that one transaction waits for another
IDLE_SECONDS = 5.0  # after which PostgreSQL ends the transaction of a client that was suspended inside it
RECONNECT_SECONDS = 20.0  # how long connecting again is tried, for example while the server restarts
_READING = "orch_reading"


class Database:
    """One open store. Safe for several threads: each block has its own connection."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.is_file = isinstance(location, Path)
        self.known_good = False  # set by the first success; before it, an unreachable server fails immediately
        self.engine = _file_engine(location) if isinstance(location, Path) else _server_engine(location)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Open a block of reads. On SQLite it neither waits for a writer nor makes one wait.

        On PostgreSQL each statement has its own view of the data, as inside a transaction of READ COMMITTED; without
        one a read is a single round trip.
        """
        with self._connection() as tx:
            yield tx.execution_options(**{_READING: True}) if self.is_file else tx

    @contextmanager
    def peeking(self) -> Generator[Connection]:
        """Open a block of reads that neither connects again for long nor translates errors of the driver."""
        with self.engine.connect() as tx:
            yield tx.execution_options(**{_READING: True}) if self.is_file else tx

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Open a transaction. It is rolled back unless `commit` is called inside the block."""
        with self._connection() as tx:
            yield tx if self.is_file else tx.execution_options(isolation_level="READ COMMITTED")

    @contextmanager
    def calling(self) -> Generator[Connection]:
        """Open a block for one change, which `apply_change` commits."""
        with self._connection() as tx:
            yield tx

    def write(self, statement: Executable) -> int:
        """Execute one statement as a transaction by itself, and return the number of rows that it changed."""
        with self._connection() as tx:
            changed = tx.execute(statement, execution_options={"preserve_rowcount": True}).rowcount
            tx.commit()  # without an effect on PostgreSQL, where it is done already
            return changed

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        try:
            with self._connect() as tx:
                self.known_good = True
                yield tx
        except DBAPIError as error:
            raise self.translate_error(error) from error
        except UnicodeDecodeError as error:  # SQLite quotes a damaged table in its message
            if not isinstance(self.location, Path):
                raise
            raise damaged_file_error(self.location, str(error)) from error

    def _connect(self) -> Connection:
        seconds = RECONNECT_SECONDS if self.known_good and not self.is_file else 0.0
        policy = RetryPolicy(backoff=STORE_CONNECT, deadline=seconds)
        return policy.run(self.engine.connect, retry=lambda error: isinstance(error, DBAPIError))

    def translate_error(self, error: DBAPIError) -> StoreError:
        """Return the StoreError for an error of the driver."""
        cause = error.orig or error
        if isinstance(self.location, Path):
            return translate_file_error(cause, self.location)
        return translate_server_error(cause, self.location, lost=error.connection_invalidated)


def refuse_damaged_pages(tx: Connection, file: Path) -> None:
    """Raise DamagedStoreError for a file in which SQLite finds a damaged page."""
    found = str(tx.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    if found != "ok":
        raise damaged_file_error(file, " ".join(found.split()))


def _file_engine(location: Path) -> Engine:
    try:
        make_private_folder(location.parent)
        with contextlib.suppress(FileExistsError), open(location, "xb", opener=open_private):
            pass  # SQLite gives the log beside it the same mode
    except OSError as error:
        raise StoreError(
            f"cannot create the store {location}", str(error), "set ORCH_HOME to a folder that you may write"
        ) from error
    refuse_truncated_file(location)
    engine = create_engine(f"sqlite:///{location}", connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True)
    event.listen(engine, "connect", _file_settings)
    event.listen(engine, "begin", _begin)
    return engine


def _file_settings(connection: Any, _record: Any) -> None:
    assert isinstance(connection, sqlite3.Connection)  # noqa: S101  # only registered for SQLite engines
    connection.isolation_level = None  # `_begin` sends BEGIN
    _use_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, again while another process does so.

    SQLite refuses this change immediately, without its own busy wait.
    """
    policy = RetryPolicy(backoff=STORE_JOURNAL, deadline=BUSY_SECONDS)
    policy.run(lambda: connection.execute("PRAGMA journal_mode=WAL"), retry=_is_busy)


def _is_busy(error: BaseException) -> bool:
    busy = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return bool(busy)


def _begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _server_engine(location: str) -> Engine:
    url = make_url(location).set(drivername="postgresql+psycopg")
    settings = {"connect_timeout": 10, "application_name": "orch", "prepare_threshold": None, "autocommit": True}
    settings = {name: value for name, value in settings.items() if name not in url.query} | connect_options(location)
    try:
        engine = create_engine(
            url,
            connect_args=settings,
            isolation_level="AUTOCOMMIT",  # each transaction that is one has its own level: see Database.writing
            use_native_hstore=False,
            pool_size=2,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise UserError(
            "a store on PostgreSQL needs the driver psycopg", str(error), install_command("server")
        ) from error

    def connect(dialect: Any, _record: Any, words: Any, options: dict[str, Any]) -> Any:
        return connect_with_passwords(location, os.environ, lambda more: dialect.connect(*words, **(options | more)))

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", _server_settings)
    event.listen(engine, "checkout", _refuse_closed)
    return engine


def _server_settings(connection: Any, _record: Any) -> None:
    """Set the limits of a session, and synchronous_commit, so that a commit survives a power loss of the server."""
    connection.execute(
        f"SELECT set_config('lock_timeout', '{BUSY_SECONDS * 1000:.0f}ms', false), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS * 1000:.0f}ms', false), "
        f"set_config('tcp_user_timeout', '{IDLE_SECONDS * 1000:.0f}ms', false), "  # of answers that it does not read
        "set_config('default_transaction_isolation', 'read committed', false), "
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
    )


def _refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """Raise DisconnectionError, for which the pool connects again, when the server has closed an idle connection.

    To find out so costs no round trip. What there is to read is the end, or a message that no one requested, such as a
    setting that the administrator changed: then it connects again without need, which does no harm. Source:
    "Asynchronous Operations" in "Frontend/Backend Protocol" of the PostgreSQL documentation (read 2026-11-24).
    """
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        if selector.select(0):
            raise DisconnectionError("the server has closed the connection")
