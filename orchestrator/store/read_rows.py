"""The reads of rows as they are, unconverted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from orchestrator.store.audited import KEYS
from orchestrator.store.conditions import where_in


class RowReads(ABC):
    """The part of a reader that gives rows of tables of audited.KEYS, unconverted."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    def rows(self, table: str) -> tuple[Mapping[str, Any], ...]:
        """Return all rows."""
        return tuple(self._rows(f"SELECT * FROM {table}"))  # noqa: S608  # a constant name

    def count_rows(self, table: str) -> int:
        """Return how many rows a table of audited.KEYS has."""
        return next((int(row["number"]) for row in self._rows(f"SELECT count(*) AS number FROM {table}")), 0)  # noqa: S608  # a constant name

    def find_rows(self, table: str, keys: Collection[tuple[object, ...]]) -> tuple[Mapping[str, Any], ...]:
        """Return the rows with these keys, by key."""
        if not keys:
            return ()
        columns = ", ".join(KEYS[table])
        key = f"({', '.join('?' * len(KEYS[table]))})"
        query = f"SELECT * FROM {table} WHERE ({columns}) IN (VALUES {', '.join([key] * len(keys))}) ORDER BY {columns}"  # noqa: S608  # names of our tables
        return tuple(self._rows(query, *(value for one in keys for value in one)))

    def rows_with(self, table: str, column: str, values: Collection[str]) -> tuple[Mapping[str, Any], ...]:
        """Return the rows with one of these values in a column, by key."""
        only, given = where_in(column, values)
        return tuple(self._rows(f"SELECT * FROM {table} WHERE {only} ORDER BY {', '.join(KEYS[table])}", *given))  # noqa: S608  # names of our tables
