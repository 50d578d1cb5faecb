"""Reading the store with nothing but the standard library, for commands that must answer at once.

Never writes, never makes the file. Only for the SQLite store on this computer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from orchestrator.errors import OrchError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Ended, Intent
from orchestrator.store.records import (
    ClusterRecord,
    EventRecord,
    JobRecord,
    cluster_from_row,
    intent_from_row,
    job_from_row,
)


class Reader:
    """Use as a context manager. An absent store reads as an empty one."""

    def __init__(self, database: Path) -> None:
        self._connection: sqlite3.Connection | None = None
        if database.exists():
            self._connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=5.0)
            self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def installation(self) -> str | None:
        for row in self._rows("SELECT value FROM meta WHERE key = 'installation'"):
            return str(row["value"])
        return None

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Living clusters, by name."""
        rows = self._rows("SELECT * FROM clusters WHERE gone IS NULL ORDER BY name")
        return tuple(cluster_from_row(dict(row)) for row in rows)

    def cluster(self, name: str) -> ClusterRecord | None:
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NULL AND name = ?", name):
            return cluster_from_row(dict(row))
        return None

    def gone_cluster(self, name: str) -> ClusterRecord | None:
        """The newest cluster of this name that is gone: its jobs and logs are still on record."""
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NOT NULL AND name = ? ORDER BY gone DESC", name):
            return cluster_from_row(dict(row))
        return None

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        rows = self._rows("SELECT * FROM intents WHERE cluster_uid = ? ORDER BY generation", cluster.uid)
        return tuple(intent_from_row(dict(row)) for row in rows)

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        rows = self._rows("SELECT * FROM jobs WHERE cluster_uid = ? ORDER BY id", cluster.uid)
        return tuple(job_from_row(dict(row)) for row in rows)

    def ended(self, cluster: ClusterRecord, job: int) -> tuple[Ended, ...]:
        query = "SELECT * FROM attempts WHERE cluster_uid = ? AND job_id = ? ORDER BY attempt"
        rows = self._rows(query, cluster.uid, job)
        return tuple(Ended(row["attempt"], EndCause(row["cause"]), row["why"], row["generation"]) for row in rows)

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """The newest job of a run on any cluster, gone or not, with the cluster's name."""
        query = (
            "SELECT jobs.*, clusters.name AS cluster_name FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE jobs.run_id = ? ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, run_id):
            return str(row["cluster_name"]), job_from_row(dict(row))
        return None

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """The newest launch or resume under a cluster name, the cluster gone or not."""
        query = (
            "SELECT jobs.* FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE clusters.name = ? AND jobs.kind != 'exec' ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, cluster):
            return job_from_row(dict(row))
        return None

    def events(self, cluster: str | None, *, after: int = 0, limit: int = 1000) -> tuple[EventRecord, ...]:
        """The newest `limit` events past sequence number `after`, oldest first."""
        query = "SELECT * FROM events WHERE seq > ? AND (? IS NULL OR cluster = ?) ORDER BY seq DESC LIMIT ?"
        rows = list(self._rows(query, after, cluster, cluster, limit))
        return tuple(
            EventRecord(row["seq"], row["at"], row["cluster"], row["actor"], row["kind"], row["what"])
            for row in reversed(rows)
        )

    def lease_holder(self, name: str) -> str:
        """Who works on it now, in words, or ""."""
        query = "SELECT * FROM leases WHERE name = ? AND owner != '' AND expires > unixepoch('now')"
        for row in self._rows(query, name):
            return f"process {row['pid']} on {row['machine']} ({row['doing']})"
        return ""

    def _rows(self, query: str, *values: object) -> Iterator[sqlite3.Row]:
        if self._connection is None:
            return
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.DatabaseError as error:
            if str(error).startswith("no such table"):
                return  # made by a command that was killed before its first write
            raise OrchError("the store cannot be read", str(error), "orch status --debug   (shows the file)") from error
