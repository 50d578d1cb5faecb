"""Statements that are sent together: on PostgreSQL a batch is one round trip, on SQLite they run one after the other.

The same text of SQL serves both databases but for the sign of a parameter and the lock of a row. What it names are
tables and columns of schema.py. A batch is one simple query of several statements ("Multiple Statements in a Simple
Query" in the documentation of PostgreSQL 17, read 2026-12-01), whose values psycopg quotes. Within BEGIN and COMMIT
each statement sees what was committed before it began, as in READ COMMITTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sqlalchemy import Boolean, Connection, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from orchestrator.store.schema import metadata

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement with `?` for each of its values.

    Attributes:
        table: Whose rows it returns; None where it returns none.
        locks: Whether the rows stay locked until the transaction ends. SQLite has locked the whole file by then.
    """

    sql: str
    values: tuple[Any, ...] = ()
    table: Table | None = None
    locks: bool = False


class Batches(Protocol):
    """An open transaction that statements are sent to, some at a time."""

    def send(self, statements: Sequence[Statement]) -> list[Rows]:
        """Execute the statements in their order, and return the rows of each."""
        ...

    def begin(self, statements: Sequence[Statement]) -> list[Rows]:
        """Begin the transaction with these statements."""
        ...

    def commit(self, statements: Sequence[Statement]) -> None:
        """End the transaction with these statements."""
        ...

    def roll_back(self) -> None:
        """End the transaction without an effect."""
        ...


@dataclass(frozen=True, slots=True)
class _OneByOne:
    """A transaction of SQLAlchemy that is open already: of a file, or of one that changes a store as a whole."""

    tx: Connection

    def send(self, statements: Sequence[Statement]) -> list[Rows]:
        return [self._execute(one) for one in statements]

    begin = send

    def commit(self, statements: Sequence[Statement]) -> None:
        self.send(statements)
        self.tx.commit()

    def roll_back(self) -> None:
        self.tx.rollback()

    def _execute(self, statement: Statement) -> Rows:
        on_server = self.tx.dialect.name == "postgresql"
        sql = _format_for_server(statement) if on_server else statement.sql
        found = self.tx.exec_driver_sql(sql, statement.values)
        if statement.table is None:
            return []
        flags = _FLAGS.get(statement.table.name, ())
        return [{**row} | {flag: bool(row[flag]) for flag in flags if flag in row} for row in found.mappings()]


class _Together:
    """A transaction on PostgreSQL whose batches are one round trip each."""

    def __init__(self, tx: Connection) -> None:
        from psycopg import ClientCursor
        from psycopg.rows import dict_row

        self._tx = tx
        self._driver = cast("Any", tx.connection.driver_connection)
        self._cursor: Any = ClientCursor(self._driver, row_factory=dict_row)

    def begin(self, statements: Sequence[Statement]) -> list[Rows]:
        return self.send([_BEGIN, *statements])[1:]

    def commit(self, statements: Sequence[Statement]) -> None:
        self.send([*statements, _COMMIT])

    def roll_back(self) -> None:
        self.send([_ROLLBACK])

    def send(self, statements: Sequence[Statement]) -> list[Rows]:
        from psycopg import Error

        try:
            self._cursor.execute(
                "; ".join(map(_format_for_server, statements)), [value for one in statements for value in one.values]
            )
            return list(self._fetch(statements))
        except Error as error:
            raise DBAPIError(None, None, error, connection_invalidated=self._leave()) from error

    def _leave(self) -> bool:
        """End the transaction after an error, and return whether the connection is lost."""
        from psycopg import Error

        with suppress(Error):
            self._driver.rollback()
        if self._driver.closed:
            self._tx.invalidate()
        return bool(self._driver.closed)

    def _fetch(self, statements: Sequence[Statement]) -> Iterator[Rows]:
        for number, statement in enumerate(statements):
            if number:
                self._cursor.nextset()
            yield self._cursor.fetchall() if statement.table is not None else []


def batches_of(tx: Connection, *, is_open: bool = False) -> Batches:
    """Return the batches of a connection.

    Args:
        tx: A connection; on PostgreSQL in no transaction, so that the first batch begins one, unless `is_open`.
        is_open: Whether its transaction has begun and has other statements, too.
    """
    return _OneByOne(tx) if is_open or tx.dialect.name != "postgresql" else _Together(tx)


def select_row(table: Table, key: Mapping[str, Any], columns: Iterable[str]) -> Statement:
    """Return the statement that reads columns of one row, and those of its key, and locks it.

    No others: an answer that fills the buffers of the network would make the server wait for a client that is frozen.
    """
    names = ", ".join(map(_quote, dict.fromkeys((*key, *columns))))
    return Statement(
        sql=f"SELECT {names} FROM {_quote(table.name)} WHERE {_join(key, ' AND ')}",  # noqa: S608  # names of the schema
        values=tuple(key.values()), table=table, locks=True,
    )  # fmt: skip


def insert_row_or_nothing(table: Table, values: Mapping[str, Any]) -> Statement:
    """Return the statement that adds a row unless its key or unique name exists, and returns a row where it did."""
    columns, marks = ", ".join(map(_quote, values)), ", ".join("?" for _ in values)
    return Statement(
        sql=f"INSERT INTO {_quote(table.name)} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING RETURNING 1 AS made",  # noqa: S608  # names of the schema
        values=tuple(values.values()), table=table,
    )  # fmt: skip


def insert_only(table: Table, values: Mapping[str, Any]) -> Statement:
    """Return the statement that adds a row which cannot exist."""
    columns, marks = ", ".join(map(_quote, values)), ", ".join("?" for _ in values)
    sql = f"INSERT INTO {_quote(table.name)} ({columns}) VALUES ({marks})"  # noqa: S608  # names of the schema
    return Statement(sql=sql, values=tuple(values.values()))


def update_only(table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> Statement:
    """Return the statement that gives columns of one row other values."""
    sql = f"UPDATE {_quote(table.name)} SET {_join(values, ', ')} WHERE {_join(key, ' AND ')}"  # noqa: S608  # names of the schema
    return Statement(sql=sql, values=(*values.values(), *key.values()))


def insert_or_nothing(tx: Connection, table: Table, values: Mapping[str, Any]) -> Any:
    """Return the statement of SQLAlchemy that adds a row unless its key or unique name exists, and returns the row."""
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    return insert(table).values(**values).on_conflict_do_nothing().returning(*table.c)


def _format_for_server(statement: Statement) -> str:
    return statement.sql.replace("?", "%s") + (" FOR UPDATE" if statement.locks else "")


_BEGIN, _COMMIT, _ROLLBACK = (Statement(sql=one) for one in ("BEGIN", "COMMIT", "ROLLBACK"))

_FLAGS = {  # columns that SQLite keeps as numbers
    table.name: [column.name for column in table.columns if isinstance(column.type, Boolean)]
    for table in metadata.tables.values()
}


def _join(values: Iterable[str], between: str) -> str:
    return between.join(f"{_quote(name)} = ?" for name in values)


def _quote(name: str) -> str:
    return f'"{name}"'
