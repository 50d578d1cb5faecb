"""The reader for PostgreSQL: the methods of read.Reader over psycopg alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from orchestrator.distribution import install_command
from orchestrator.errors import UserError
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.store.failures import refused_login_error, translate_server_error
from orchestrator.store.location import describe_location
from orchestrator.store.other_state import Tie
from orchestrator.store.password_file import connect_with_passwords
from orchestrator.store.project_limit import limit_query
from orchestrator.store.read import Reader
from orchestrator.store.transport import connect_options

CONNECT_SECONDS = 10


class ServerReader(Reader):
    """A read-only view of a store on PostgreSQL. A database without our tables reads as an empty store."""

    def __init__(self, location: str, project: str = DEFAULT_PROJECT) -> None:  # the base class opens a file
        self.project = project
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise UserError(
                "a store on PostgreSQL needs the driver psycopg", str(error), install_command("server")
            ) from error
        self._location = location
        self._failures = psycopg.Error
        self._absent = psycopg.errors.UndefinedTable
        self._in_snapshot = False
        self._server = self._connect()
        self._refuse_other_version(describe_location(location))

    def _connect(self) -> Any:
        import psycopg
        from psycopg.rows import dict_row

        address = "postgresql://" + self._location.partition("://")[2]
        if "connect_timeout" not in address:
            address += ("&" if "?" in address else "?") + f"connect_timeout={CONNECT_SECONDS}"
        options: dict[str, Any] = {**connect_options(self._location)}

        def connect(more: dict[str, Any]) -> Any:
            return psycopg.Connection[dict[str, Any]].connect(
                address, autocommit=True, row_factory=dict_row, prepare_threshold=None, **options, **more
            )

        try:
            server = connect_with_passwords(self._location, os.environ, connect)
        except psycopg.Error as error:
            raise translate_server_error(error, self._location, lost=True) from error
        server.read_only = True
        return server

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.close()

    def lease_time(self) -> float:
        for row in self._rows("SELECT extract(epoch FROM clock_timestamp()) AS now"):
            return float(row["now"])
        return 0.0

    @property
    def file(self) -> None:
        return None

    def read_tie(self) -> Tie:
        may = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AS value"
        system = "SELECT system_identifier AS value FROM pg_control_system()" if self._read_value(may) == "True" else ""
        oid = "SELECT oid AS value FROM pg_database WHERE datname = current_database()"
        return Tie(system=self._read_value(system) if system else "", database=self._read_value(oid))

    def _read_value(self, query: str) -> str:
        return next((str(row["value"]) for row in self._rows(query)), "")

    def hold_snapshot(self) -> None:
        self._in_snapshot = True
        self._server.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def find_page_fault(self) -> str:
        """Return "": the server checks its own pages."""
        return ""

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        if self.only_project:
            query = limit_query(query, self.only_project, "")
        try:
            return self._fetch(query, values)
        except self._absent as error:
            for row in self._rows("SELECT current_schema() AS place"):
                if row["place"] is None:  # the tables may exist in a schema that this login may not use
                    raise refused_login_error(str(error).split("\n")[0], self._location) from error
            return []
        except self._failures as error:
            raise translate_server_error(error, self._location, lost=self._server.broken) from error

    def _fetch(self, query: str, values: tuple[object, ...]) -> list[Mapping[str, Any]]:
        """Send a query; once more on another connection where the server has ended this one, since it only reads."""
        text = query.replace("?", "%s").encode()
        try:
            return list(self._server.execute(text, values).fetchall())
        except self._failures:
            if not self._server.broken or self._in_snapshot:
                raise
        self._server = self._connect()
        return list(self._server.execute(text, values).fetchall())
