"""Stores of other versions: those from before version 1, and an invented version 2."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from orchestrator.store import audited, migrations
from orchestrator.store.connection import Database
from orchestrator.store.location import Location
from orchestrator.store.store import Store

NEXT = 2


@contextmanager
def next_version() -> Generator[None]:
    """Make the orch of this process one of the invented version, which adds: one of version 1 can still be used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "SCHEMA_VERSION", NEXT)
        patch.setitem(migrations.STEPS, NEXT, _migrate)
        patch.setitem(audited.DEFAULTS, "clusters", {"colour": "grey"})
        yield


def _migrate(tx: Connection, _at: float) -> None:
    tx.execute(text("ALTER TABLE clusters ADD COLUMN colour VARCHAR NOT NULL DEFAULT 'grey'"))
    tx.execute(text("CREATE TABLE flags (name VARCHAR NOT NULL PRIMARY KEY)"))
    tx.execute(text("INSERT INTO flags (name) VALUES ('one')"))


def write_versions(location: Location, **values: int) -> None:
    """Write the versions of a store, which is made where there is none."""
    with Store(location) as store, store._database.writing() as tx:
        for key, value in values.items():
            tx.execute(text("UPDATE meta SET value = :v WHERE key = :k"), {"k": key, "v": str(value)})
        tx.commit()


def make_earlier(location: Location, version: int, *names: str) -> None:
    """Make a store with open clusters that says of itself what one from before version 1 says."""
    with Store(location) as store:
        for name in names:
            store.open_cluster(name, "")
        with store._database.writing() as tx:
            tx.execute(text("DELETE FROM meta WHERE key IN ('version', 'min_reader', 'min_writer')"))
            rows = {"schema": min(version, 4)} | ({"version": version, "min_reader": 4} if version > 4 else {})
            for key, value in rows.items():
                tx.execute(text("INSERT INTO meta VALUES (:k, :v)"), {"k": key, "v": str(value)})
            tx.commit()


def dump_rows(location: Location) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables."""
    with closing(Database(location)) as database, database.reading() as tx:
        return {
            table: sorted((tuple(row) for row in tx.execute(text(f"SELECT * FROM {table}"))), key=repr)
            for table in sorted(inspect(tx).get_table_names())
        }
