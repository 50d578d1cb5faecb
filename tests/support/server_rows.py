"""The rows of a PostgreSQL store, kept aside and put back: far quicker than a new database for every run."""

from __future__ import annotations

import pickle
from typing import Any

import psycopg

from orchestrator.store.schema import metadata


def empty_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT current_schema()").fetchone()
        assert found is not None
        connection.execute(f'DROP SCHEMA "{found[0]}" CASCADE'.encode())
        connection.execute(f'CREATE SCHEMA "{found[0]}"'.encode())


def read_rows(url: str) -> bytes:
    """Of all tables; of an empty database: nothing."""
    with psycopg.connect(url) as connection:
        found: dict[str, tuple[list[str], list[Any]]] = {}
        there = connection.execute("SELECT to_regclass('meta')").fetchone()
        for table in metadata.sorted_tables if there and there[0] else ():
            cursor = connection.execute(f'SELECT * FROM "{table.name}"'.encode())
            found[table.name] = ([column.name for column in cursor.description or ()], cursor.fetchall())
    return pickle.dumps(found)


def write_rows(url: str, kept: bytes) -> None:
    """Waits for what a killed command still holds: the server ends its transaction when it sees that it is gone."""
    found: dict[str, tuple[list[str], list[Any]]] = pickle.loads(kept)
    if not found:
        empty_database(url)
        return
    with psycopg.connect(url) as connection:
        names = ", ".join(f'"{name}"' for name in found)
        connection.execute(
            "SET session_replication_role = replica"
        )  # events are only added, except for an administrator
        connection.execute(f"TRUNCATE {names}".encode())
        for name, (columns, rows) in found.items():
            if not rows:
                continue
            words = ", ".join(f'"{column}"' for column in columns)
            with connection.cursor().copy(f'COPY "{name}" ({words}) FROM STDIN'.encode()) as copy:
                for row in rows:
                    copy.write_row(row)
