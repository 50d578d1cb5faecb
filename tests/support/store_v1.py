"""A store of schema version 1, from the text that the first release left behind, on either database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from orchestrator.store.location import Location

SCRIPT = Path(__file__).with_name("schema_v1.sql")
TABLES = ("attempts", "clusters", "events", "intents", "jobs", "leases", "meta")


def put_v1(location: Location) -> None:
    if isinstance(location, Path):
        location.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(location) as raw:
            raw.executescript(SCRIPT.read_text())
        raw.close()
        return
    source = sqlite3.connect(":memory:")
    source.executescript(SCRIPT.read_text())
    import psycopg

    with psycopg.connect(location) as target:
        for (statement,) in source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"):
            target.execute(statement)
        for table in TABLES:
            cursor = source.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            marks = ", ".join(["%s"] * len(names))
            for row in cursor:
                values = [bool(v) if name == "started" else v for name, v in zip(names, row, strict=True)]
                target.execute(f"INSERT INTO {table} VALUES ({marks})".encode(), values)


def rows_of(location: Location) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of version 1, with the columns of version 1."""
    columns = _columns()
    queries = {table: f"SELECT {', '.join(columns[table])} FROM {table} ORDER BY 1, 2" for table in TABLES}
    if isinstance(location, Path):
        raw = sqlite3.connect(f"{location.as_uri()}?mode=ro", uri=True)
        try:
            return {table: [tuple(row) for row in raw.execute(query)] for table, query in queries.items()}
        finally:
            raw.close()
    import psycopg

    with psycopg.connect(location) as server:
        return {table: server.execute(query.encode()).fetchall() for table, query in queries.items()}


def _columns() -> dict[str, list[str]]:
    source = sqlite3.connect(":memory:")
    source.executescript(SCRIPT.read_text())
    return {table: [f'"{row[1]}"' for row in source.execute(f"PRAGMA table_info({table})")] for table in TABLES}
