"""Reading the store with nothing but the standard library, for commands that must answer at once.

Never writes, never makes the file. A file of an older version is read as it is. For PostgreSQL: read_server.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.plan.observed import Ended, Intent
from orchestrator.store.audited import Head
from orchestrator.store.failures import StoreError, file_failure, refuse_cut
from orchestrator.store.location import Location
from orchestrator.store.records import (
    ClusterRecord,
    EventRecord,
    JobRecord,
    PipelineRecord,
    cluster_from_row,
    ended_from_row,
    event_from_row,
    intent_from_row,
    job_from_row,
    pipeline_from_row,
)
from orchestrator.store.version import SCHEMA_VERSION, newer


def open_reader_at(location: Location) -> Reader:
    """A reader of the SQLite file or the PostgreSQL database at `location`."""
    if isinstance(location, Path):
        return Reader(location)
    from orchestrator.store.read_server import ServerReader

    return ServerReader(location)


class Reader:
    """Use as a context manager. An absent store reads as an empty one."""

    _clock = "unixepoch('subsec')" if sqlite3.sqlite_version_info >= (3, 42) else "unixepoch('now')"

    def __init__(self, database: Path) -> None:
        self._file = database
        self._connection: sqlite3.Connection | None = None
        if database.exists():
            refuse_cut(database, reading=True)
            self._connection = _open(database)
            self._refuse_newer(str(database))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def installation(self) -> str | None:
        return self._meta("installation")

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Living clusters, by name."""
        rows = self._rows("SELECT * FROM clusters WHERE gone IS NULL ORDER BY name")
        return tuple(cluster_from_row(row) for row in rows)

    def cluster(self, name: str) -> ClusterRecord | None:
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NULL AND name = ?", name):
            return cluster_from_row(row)
        return None

    def gone_cluster(self, name: str) -> ClusterRecord | None:
        """The newest cluster of this name that is gone: its jobs and logs are still on record."""
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NOT NULL AND name = ? ORDER BY gone DESC", name):
            return cluster_from_row(row)
        return None

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        rows = self._rows("SELECT * FROM intents WHERE cluster_uid = ? ORDER BY generation", cluster.uid)
        return tuple(intent_from_row(row) for row in rows)

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        rows = self._rows("SELECT * FROM jobs WHERE cluster_uid = ? ORDER BY id", cluster.uid)
        return tuple(job_from_row(row) for row in rows)

    def ended(self, cluster: ClusterRecord, job: int) -> tuple[Ended, ...]:
        query = "SELECT * FROM attempts WHERE cluster_uid = ? AND job_id = ? ORDER BY attempt"
        return tuple(ended_from_row(row) for row in self._rows(query, cluster.uid, job))

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """The newest job of a run on any cluster, gone or not, with the cluster's name."""
        query = (
            "SELECT jobs.*, clusters.name AS cluster_name FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE jobs.run_id = ? ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, run_id):
            return str(row["cluster_name"]), job_from_row(row)
        return None

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """The newest launch or resume under a cluster name, the cluster gone or not."""
        query = (
            "SELECT jobs.* FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE clusters.name = ? AND jobs.kind != 'exec' ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, cluster):
            return job_from_row(row)
        return None

    def watchable(self) -> tuple[tuple[ClusterRecord, JobRecord], ...]:
        """Jobs that unattended engines shall drive and that are not ended, oldest first, on living clusters."""
        living = {record.uid: record for record in self.clusters()}
        query = "SELECT * FROM jobs WHERE watch = 'engine' AND state != 'ended' ORDER BY created, id"
        found = [job_from_row(row) for row in self._rows(query)] if self.version > 1 else []
        return tuple((living[job.cluster_uid], job) for job in found if job.cluster_uid in living)

    def half_down(self) -> tuple[ClusterRecord, ...]:
        """Clusters that shall be down and are not gone yet, oldest first."""
        query = "SELECT * FROM clusters WHERE wanted = 'down' AND gone IS NULL ORDER BY created"
        return tuple(cluster_from_row(row) for row in self._rows(query))

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """All, oldest first."""
        return tuple(pipeline_from_row(row) for row in self._rows("SELECT * FROM pipelines ORDER BY created, uid"))

    def pipeline(self, uid: str) -> PipelineRecord:
        """Raises NotFoundError when there is none."""
        for row in self._rows("SELECT * FROM pipelines WHERE uid = ?", uid):
            return pipeline_from_row(row)
        raise NotFoundError(f"no pipeline {uid}", next_step="orch status")

    def events(self, cluster: str | None, *, after: int = 0, limit: int = 1000) -> tuple[EventRecord, ...]:
        """The newest `limit` events past sequence number `after`, oldest first."""
        only = "" if cluster is None else "AND cluster = ? "
        query = f"SELECT * FROM events WHERE seq > ? {only}ORDER BY seq DESC LIMIT ?"  # noqa: S608  # our own words
        values = (after, limit) if cluster is None else (after, cluster, limit)
        return tuple(event_from_row(row) for row in reversed(list(self._rows(query, *values))))

    def all_events(self) -> Iterator[EventRecord]:
        """The whole audit, oldest first, for replay.verify and replay.rebuild."""
        for row in self._rows("SELECT * FROM events ORDER BY seq"):
            yield event_from_row(row)

    def head(self) -> Head:
        """The head of the audit's chain."""
        return Head.read(self._meta("chain") or str(Head()))

    def rows(self, table: str) -> tuple[Mapping[str, Any], ...]:
        """All of one table, as it is. table: a name of audited.KEYS."""
        return tuple(self._rows(f"SELECT * FROM {table}"))  # noqa: S608  # our own names

    def page_fault(self) -> str:
        """What SQLite finds wrong with the file's pages, or ""."""
        said = [str(row["quick_check"]) for row in self._rows("PRAGMA quick_check(1)")]
        return "" if said in ([], ["ok"]) else said[0]

    def lease_holder(self, name: str) -> str:
        """Who works on it now, in words, or ""."""
        query = f"SELECT * FROM leases WHERE name = ? AND owner != '' AND expires > {self._clock}"  # noqa: S608  # ours
        for row in self._rows(query, name):
            return f"process {row['pid']} on {row['machine']} ({row['doing']})"
        return ""

    def _meta(self, key: str) -> str | None:
        for row in self._rows("SELECT value FROM meta WHERE key = ?", key):
            return str(row["value"])
        return None

    @property
    def version(self) -> int:
        """Of the tables; an absent store counts as one of version 1 without rows."""
        return int(self._meta("schema") or "1")

    def _refuse_newer(self, place: str) -> None:
        try:
            version = self.version
        except StoreError:
            return  # said by the first real read, which names what it wanted
        if version > SCHEMA_VERSION:
            raise newer(place, version)

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        """All rows by column name. Read at once: a reader must not hold the file while its user thinks."""
        if self._connection is None:
            return []
        try:
            return [dict(row) for row in self._connection.execute(query, values)]
        except sqlite3.DatabaseError as error:
            if str(error).startswith("no such table"):
                return []  # an older version, or made by a command that was killed before its first write
            raise file_failure(error, self._file, reading=True) from error


def _open(database: Path) -> sqlite3.Connection:
    """A read-only connection. In a folder where we may not write, SQLite can read a closed file only as unchanging.

    That holds where no -wal file lies: nobody has the store open for writing then.
    """
    uri = f"{database.as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.DatabaseError as error:
        closed = str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN"))
        if closed and not database.with_name(database.name + "-wal").exists():
            connection.close()
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True)
            connection.row_factory = sqlite3.Row
    return connection
