"""The records of the providers as rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.private_files import make_private_folder
from orchestrator.store.connection import Database
from orchestrator.store.location import Location
from orchestrator.store.migrations import open_tables
from orchestrator.store.schema import provider_records as rows


class StoredRecords:
    """Where all providers of one installation keep their records; the store is opened at the first use."""

    def __init__(self, location: Callable[[], Location]) -> None:
        self._location = location

    def __call__(self, folder: Path) -> StoredKind:
        """Return the records of the kind that this folder is named after."""
        return StoredKind(self, folder)

    @cached_property
    def database(self) -> Database:
        """The open store. Raises StoreError."""
        database = Database(self._location())
        open_tables(database, time.time())
        return database

    @property
    def is_empty(self) -> bool:
        """Whether there is no store yet, which a command that only looks does not make."""
        location = self._location()
        return isinstance(location, Path) and not location.exists()


class StoredKind:
    """The records of one kind; see providers.records.Records."""

    def __init__(self, stored: StoredRecords, folder: Path) -> None:
        self.folder = folder
        self._stored = stored
        self._kind = folder.name

    def read(self, name: str) -> str | None:
        """Return a record."""
        if self._stored.is_empty:
            return None
        query = select(rows.c.body).where(rows.c.kind == self._kind, rows.c.name == name)
        with self._open() as database, database.reading() as tx:
            return tx.execute(query).scalar()

    def put(self, name: str, text: str) -> None:
        """Write a record."""
        make_private_folder(self.folder)  # that there is one says that the provider was used from here
        values = {"kind": self._kind, "name": name, "body": text}
        with self._open() as database:
            database.write(_insert_or_replace(database, values))

    def drop(self, name: str) -> None:
        """Delete a record, if there is one."""
        if self._stored.is_empty:
            return
        with self._open() as database:
            database.write(delete(rows).where(rows.c.kind == self._kind, rows.c.name == name))

    def names(self) -> list[str]:
        """Return the names of all records."""
        if self._stored.is_empty:
            return []
        query = select(rows.c.name).where(rows.c.kind == self._kind).order_by(rows.c.name)
        with self._open() as database, database.reading() as tx:
            return list(tx.execute(query).scalars())

    def place(self, name: str) -> str:
        """Return where a person finds a record."""
        return f"{self._kind}/{name} in the table provider_records of the store"

    def beside(self, kind: str) -> StoredKind:
        """Return the records of another kind of the same provider."""
        return StoredKind(self._stored, self.folder.with_name(f"{self._kind}-{kind}"))

    @contextmanager
    def _open(self) -> Generator[Database]:
        """Yield the store. A file is closed again: what a process leaves open at its end, leaves its log behind."""
        database = self._stored.database
        try:
            yield database
        finally:
            if database.is_file:
                database.close()


def _insert_or_replace(database: Database, values: dict[str, Any]) -> Any:
    insert = sqlite.insert if database.is_file else postgresql.insert
    key = (rows.c.kind, rows.c.name)
    return insert(rows).values(**values).on_conflict_do_update(index_elements=key, set_={"body": values["body"]})
