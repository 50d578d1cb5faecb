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


class SentRows(Reader):
    """A reader of the rows that a service sent for a member."""

    def __init__(self, document: Document) -> None:  # the base class opens a file
        """Take the rows over. Raises ValueError, TypeError or LookupError for another document."""
        self.project, self.asking_member = str(document["project"]), str(document["member"])
        self._file = Path(":memory:")
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        meta = {name: str(document[name]) for name in ("installation", "incarnation")}
        self._keep("meta", ["key", "value"], [list(one) for one in meta.items()])
        tables: Mapping[str, Mapping[str, Any]] = document["tables"]
        for table, content in tables.items():
            self._keep(table, content["columns"], content["rows"])

    def _keep(self, table: str, columns: list[str], rows: list[list[Any]]) -> None:
        """Make a table. Its columns need no types: values are written as they came."""
        if not all(name.isidentifier() for name in (table, *columns)):
            raise ValueError(f"a table or column has the name {table[:40]!r}")
        connection = self._connection
        assert connection is not None  # noqa: S101  # made by __init__
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
        connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)  # noqa: S608  # identifiers

    @property
    def file(self) -> None:
        """None: the store is the concern of the service."""
        return None
