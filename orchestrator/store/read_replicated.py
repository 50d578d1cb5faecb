"""What a reader gives to a copy of the store elsewhere: rows by their keys, and who is at work."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from orchestrator.store.audited import KEYS


class ReplicatedReads(ABC):
    """The part of a reader that concerns copies."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    @abstractmethod
    def lease_time(self) -> float:
        """Return the seconds in which leases expire."""

    @abstractmethod
    def lease_holder(self, name: str) -> str:
        """Return a description of the lease's holder, or "" when it is free."""

    def engine_works(self) -> bool:
        """Return whether an unattended engine of this user and computer is at work."""
        from orchestrator.computer import name_engine

        return bool(self.lease_holder(f"engine:{name_engine(os.environ)}"))

    def held_leases(self) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of all leases that are held, by name."""
        from orchestrator.store.lease_process import is_alive

        rows = self._rows("SELECT * FROM leases WHERE owner != '' AND expires > ? ORDER BY name", self.lease_time())
        return tuple(row for row in rows if is_alive(row))

    def find_rows(self, table: str, keys: Collection[tuple[object, ...]]) -> tuple[Mapping[str, Any], ...]:
        """Return the present rows of a table of audited.KEYS with these keys, by key and unconverted."""
        if not keys:
            return ()
        columns = ", ".join(KEYS[table])
        key = f"({', '.join('?' * len(KEYS[table]))})"
        query = f"SELECT * FROM {table} WHERE ({columns}) IN (VALUES {', '.join([key] * len(keys))}) ORDER BY {columns}"  # noqa: S608  # names of our tables
        return tuple(self._rows(query, *(value for one in keys for value in one)))
