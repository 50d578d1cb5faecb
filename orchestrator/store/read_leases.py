"""The reads of who is at work: leases that are held, and unattended engines."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any


class LeaseReads(ABC):
    """The part of a reader that concerns leases."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    @abstractmethod
    def lease_time(self) -> float:
        """Return the seconds in which leases expire; see leases.py."""

    def lease_holder(self, name: str) -> str:
        """Return a description of the lease's holder, or "" when it is free or its process has ended."""
        from orchestrator.store.lease_process import is_alive

        query = "SELECT * FROM leases WHERE name = ? AND owner != '' AND expires > ?"
        for row in self._rows(query, name, self.lease_time()):
            if is_alive(row):
                return f"process {row['pid']} on {row['machine']} ({row['doing']})"
        return ""

    def other_engines(self, own: str) -> tuple[str, ...]:
        """Return the names of the engines that work on the store now, but for that of this computer: other servers."""
        from orchestrator.store.lease_process import is_alive

        query = (
            "SELECT * FROM leases WHERE substr(name, 1, 7) = 'engine:' AND name <> ? AND owner <> '' AND expires > ?"
        )
        rows = self._rows(query, f"engine:{own}", self.lease_time())
        return tuple(sorted(str(row["name"]).partition(":")[2] for row in rows if is_alive(row)))

    def engine_works(self) -> bool:
        """Return whether an unattended engine of this user and computer is at work."""
        from orchestrator.computer import name_engine

        return bool(self.lease_holder(f"engine:{name_engine(os.environ)}"))
