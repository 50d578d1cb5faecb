"""The light reader for PostgreSQL: the same questions as read.py, over psycopg alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from orchestrator.errors import UserError
from orchestrator.store.failures import server_failure
from orchestrator.store.location import described
from orchestrator.store.read import Reader

CONNECT_SECONDS = 10


class ServerReader(Reader):
    """Use as a context manager. A database without our tables reads as an empty store."""

    _clock = "extract(epoch FROM clock_timestamp())"

    def __init__(self, location: str) -> None:  # the parent's opens a file
        try:
            import psycopg
            from psycopg.rows import dict_row
        except ModuleNotFoundError as error:
            raise UserError(
                "a store on PostgreSQL needs the driver psycopg", str(error), "pip install 'orch[server]'"
            ) from error
        self._location = location
        self._failures = psycopg.Error
        self._absent = psycopg.errors.UndefinedTable
        address = "postgresql://" + location.partition("://")[2]
        if "connect_timeout" not in address:
            address += ("&" if "?" in address else "?") + f"connect_timeout={CONNECT_SECONDS}"
        try:
            self._server = psycopg.Connection[dict[str, Any]].connect(
                address, autocommit=True, row_factory=dict_row, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise server_failure(error, location, lost=True) from error
        self._server.read_only = True
        self._refuse_newer(described(location))

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.close()

    def page_fault(self) -> str:
        """The server checks its own pages."""
        return ""

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        try:
            return self._server.execute(query.replace("?", "%s").encode(), values).fetchall()
        except self._absent:
            return []
        except self._failures as error:
            raise server_failure(error, self._location, lost=self._server.broken) from error
