"""What a reader says of the progress that engines keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """One thing that an engine did for a cluster.

    Attributes:
        number: Later ones have higher numbers; on PostgreSQL one may be seen after a higher one.
        cluster: Qualified name.
        document: The progress as JSON.
    """

    number: int
    cluster: str
    document: str


class ProgressReads(ABC):
    """The part of a reader that concerns progress."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    def progress_after(self, number: int, limit: int) -> tuple[ProgressRecord, ...]:
        """Return the oldest `limit` rows past a number, oldest first."""
        query = "SELECT number, cluster, document FROM progress WHERE number > ? ORDER BY number LIMIT ?"
        return tuple(ProgressRecord(**row) for row in self._rows(query, number, limit))

    def newest_progress(self) -> int:
        """Return the highest number; 0 where nothing is kept."""
        return next((int(row["number"] or 0) for row in self._rows("SELECT MAX(number) AS number FROM progress")), 0)
