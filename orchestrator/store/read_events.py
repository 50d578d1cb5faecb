"""Events, which are the audit, each with the hash of the one before it, and the progress of engines, which is none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.store.audited import Head
from orchestrator.store.conditions import where_in
from orchestrator.store.records import EventRecord, event_from_row

_PAGE = 2000  # events of one query where all are read
_LEAST = -(2**63)  # also an event that another program has numbered below 1 is read


class EventReads(ABC):
    """The part of a reader that concerns events."""

    only_project: str

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    @abstractmethod
    def _meta(self, key: str) -> str | None: ...

    def events(
        self, cluster: str | None, *, after: int = 0, before: int | None = None, limit: int = 1000
    ) -> tuple[EventRecord, ...]:
        """Return the newest `limit` events between two sequence numbers, oldest first.

        Args:
            cluster: Qualified name of a cluster (project.qualify_name); None for all of all projects.
            after: The lower number; it is left out.
            before: The higher one, which is left out, too; None for none.
            limit: The most.
        """
        only = "" if cluster is None else "AND cluster = ? "
        only += "" if before is None else "AND seq < ? "
        query = f"SELECT * FROM events WHERE seq > ? {only}ORDER BY seq DESC LIMIT ?"  # noqa: S608  # constant parts
        values = (after, *(one for one in (cluster, before) if one is not None), limit)
        return tuple(event_from_row(row) for row in reversed(list(self._rows(query, *values))))

    def events_after(self, seq: int, limit: int, cluster: str | None = None) -> tuple[EventRecord, ...]:
        """Return the oldest `limit` events past a sequence number, oldest first; see `events` for the newest.

        Args:
            seq: The sequence number.
            limit: The most.
            cluster: Qualified name of a cluster; None for all of all projects.
        """
        only, values = where_in("cluster", None if cluster is None else [cluster])
        query = f"SELECT * FROM events WHERE seq > ? AND {only} ORDER BY seq LIMIT ?"  # noqa: S608  # constant parts
        return tuple(map(event_from_row, self._rows(query, seq, *values, limit)))

    def events_of_kinds(self, kinds: Collection[str], since: float) -> tuple[EventRecord, ...]:
        """Return the events of some kinds since a moment, in epoch seconds, oldest first."""
        only, values = where_in("kind", kinds)
        query = f"SELECT * FROM events WHERE {only} AND at >= ? ORDER BY seq"  # noqa: S608  # constant parts
        return tuple(map(event_from_row, self._rows(query, *values, since)))

    def all_events(self) -> Iterator[EventRecord]:
        """Yield the complete audit, oldest first, with few events in memory."""
        last = _LEAST
        while rows := list(self._rows("SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?", last, _PAGE)):
            yield from map(event_from_row, rows)
            last = int(rows[-1]["seq"])

    def row_events(self) -> Iterator[EventRecord]:
        """Yield the events that changed rows, by row and then oldest first, with few events in memory."""
        query = "SELECT * FROM events WHERE after IS NOT NULL AND (subject, seq) > (?, ?) ORDER BY subject, seq LIMIT ?"
        last: tuple[str, int] = ("", _LEAST)
        while rows := list(self._rows(query, *last, _PAGE)):
            yield from map(event_from_row, rows)
            last = str(rows[-1]["subject"]), int(rows[-1]["seq"])

    def has_row_event(self, subject: str) -> bool:
        """Return whether an event changed the row of this subject."""
        query = "SELECT seq FROM events WHERE subject = ? AND after IS NOT NULL LIMIT 1"
        return any(True for _ in self._rows(query, subject))

    def count_events(self) -> int:
        """Return how many events there are; for a reader of one project only its own."""
        if not self.only_project:
            return self.head().seq
        return next((int(row["number"]) for row in self._rows("SELECT count(*) AS number FROM events")), 0)

    def head(self) -> Head:
        """Return the head of the event chain."""
        return Head.parse(self._meta("chain") or str(Head()))

    def find_hash(self, seq: int) -> str:
        """Return the hash of an event, of whichever project; "" for none."""
        only, self.only_project = self.only_project, ""
        try:
            return next((str(row["hash"]) for row in self._rows("SELECT hash FROM events WHERE seq = ?", seq)), "")
        finally:
            self.only_project = only


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """Progress of a cluster: a single thing that an engine did.

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
