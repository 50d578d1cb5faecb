"""The records of clusters for a command on their hosts: those of the store, or the rows that a service sends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.service_address import find_server
from orchestrator.store.read import Reader

if TYPE_CHECKING:
    from orchestrator.client.base import Document


@contextmanager
def open_host_records(cluster: str = "") -> Generator[Reader]:
    """Open the records of a cluster, or of all that exist, for reading. Raises OrchError where there are none."""
    with host_record_source(cluster) as open_records, open_records() as store:
        yield store


@contextmanager
def host_record_source(cluster: str = "") -> Generator[Callable[[], AbstractContextManager[Reader]]]:
    """Give a function that opens the present records for reading, for a command that reads them again and again."""
    if url := find_server(os.environ):
        from orchestrator.client.http import explain_unreadable, open_service

        with open_service(url) as client:

            def read_rows() -> Reader:
                with explain_unreadable(client):
                    return SentRows(client.read_records(cluster))

            yield read_rows
        return
    from orchestrator.client.local import open_own_reader

    yield open_own_reader


_TABLES = ("clusters", "intents", "jobs", "attempts", "slice_owners")


class SentRows(Reader):
    """A reader of the rows that a service sent for a member."""

    def __init__(self, document: Document) -> None:  # the base class opens a file
        """Take the rows over, and read them once. Raises ValueError, TypeError or LookupError for another document."""
        self.project, self.asking_member = str(document["project"]), str(document["member"])
        self._file = Path(":memory:")
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        meta = {name: str(document[name]) for name in ("installation", "incarnation")}
        self._keep("meta", ["key", "value"], [list(one) for one in meta.items()])
        tables: Mapping[str, Mapping[str, Any]] = document["tables"]
        try:
            for table in _TABLES:
                self._keep(table, tables[table]["columns"], tables[table]["rows"])
            for record in self.clusters_by_uid().values():
                self.intents(record)
                self.jobs(record)
        except (sqlite3.Error, RecursionError) as error:
            raise ValueError(f"its rows cannot be read: {error}") from error

    def _keep(self, table: str, columns: list[str], rows: list[list[Any]]) -> None:
        """Make a table. Its columns need no types: values are written as they came."""
        if not all(name.isidentifier() for name in columns):
            raise ValueError(f"a column of {table} has no name")
        connection = self._connection
        assert connection is not None  # noqa: S101  # made by __init__
        named = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f"CREATE TABLE {table} ({named})")
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)  # noqa: S608  # identifiers

    @property
    def file(self) -> None:
        """None: the store is the concern of the service."""
        return None
