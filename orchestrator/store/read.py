"""A reader of the store that needs only the standard library, for commands that must answer immediately.

It never writes and never creates the file. A file of an older version is read as it is. For PostgreSQL: read_server.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator.clock import SteadyClock
from orchestrator.errors import NotFoundError
from orchestrator.hosts import HostPin
from orchestrator.plan.observed import EndedAttempt, Intent
from orchestrator.store.audited import Head
from orchestrator.store.failures import StoreError, refuse_truncated_file, translate_file_error
from orchestrator.store.location import Location
from orchestrator.store.records import (
    ClusterRecord,
    EventRecord,
    JobRecord,
    PipelineRecord,
    cluster_from_row,
    ended_from_row,
    event_from_row,
    host_pin_from_row,
    intent_from_row,
    job_from_row,
    pipeline_from_row,
)
from orchestrator.store.version import SCHEMA_VERSION, newer_store_error


def open_reader_at(location: Location) -> Reader:
    """Return a reader of the SQLite file or the PostgreSQL database at `location`."""
    if isinstance(location, Path):
        return Reader(location)
    from orchestrator.store.read_server import ServerReader

    return ServerReader(location)


class Reader:
    """A read-only view of the store, used as a context manager. An absent store reads as an empty one."""

    def __init__(self, database: Path) -> None:
        self._file = database
        self._connection: sqlite3.Connection | None = None
        if database.exists():
            refuse_truncated_file(database, reading=True)
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
        """Return the installation's name, None for an absent store."""
        return self._meta("installation")

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return the open clusters by name."""
        rows = self._rows("SELECT * FROM clusters WHERE gone IS NULL ORDER BY name")
        return tuple(cluster_from_row(row) for row in rows)

    def cluster(self, name: str) -> ClusterRecord | None:
        """Return the open cluster of this name, or None."""
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NULL AND name = ?", name):
            return cluster_from_row(row)
        return None

    def deleted_cluster(self, name: str) -> ClusterRecord | None:
        """Return the newest closed cluster of this name, whose jobs and logs are still on record; None without one."""
        for row in self._rows("SELECT * FROM clusters WHERE gone IS NOT NULL AND name = ? ORDER BY gone DESC", name):
            return cluster_from_row(row)
        return None

    def all_clusters(self) -> tuple[ClusterRecord, ...]:
        """Return every cluster on record, the deleted ones too, oldest first."""
        return tuple(cluster_from_row(row) for row in self._rows("SELECT * FROM clusters ORDER BY created, uid"))

    def job_actors(self) -> dict[str, str]:
        """Return who opened each job, as `user@computer:pid`, by the job's subject (audited.format_subject)."""
        query = "SELECT subject, actor FROM events WHERE subject LIKE ? ORDER BY seq DESC"
        return {str(row["subject"]): str(row["actor"]) for row in self._rows(query, "job %")}  # the oldest event is kept

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        """Return the intents of a cluster by generation."""
        rows = self._rows("SELECT * FROM intents WHERE cluster_uid = ? ORDER BY generation", cluster.uid)
        return tuple(intent_from_row(row) for row in rows)

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        """Return the jobs of a cluster by number."""
        rows = self._rows("SELECT * FROM jobs WHERE cluster_uid = ? ORDER BY id", cluster.uid)
        return tuple(job_from_row(row) for row in rows)

    def ended_attempts(self, cluster: ClusterRecord, job: int) -> tuple[EndedAttempt, ...]:
        query = "SELECT * FROM attempts WHERE cluster_uid = ? AND job_id = ? ORDER BY attempt"
        return tuple(ended_from_row(row) for row in self._rows(query, cluster.uid, job))

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """Return the newest job of a run with its cluster's name, of open and closed clusters; None without one."""
        query = (
            "SELECT jobs.*, clusters.name AS cluster_name FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE jobs.run_id = ? ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, run_id):
            return str(row["cluster_name"]), job_from_row(row)
        return None

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """Return the newest launch or resume on clusters of this name, open or closed; None without one."""
        query = (
            "SELECT jobs.* FROM jobs JOIN clusters ON clusters.uid = jobs.cluster_uid "
            "WHERE clusters.name = ? AND jobs.kind != 'exec' ORDER BY jobs.created DESC LIMIT 1"
        )
        for row in self._rows(query, cluster):
            return job_from_row(row)
        return None

    def unattended_jobs(self) -> tuple[tuple[ClusterRecord, JobRecord], ...]:
        """Return the unfinished jobs that unattended engines drive, of open clusters, oldest first."""
        open_records = {record.uid: record for record in self.clusters()}
        query = "SELECT * FROM jobs WHERE watch = 'engine' AND state != 'ended' ORDER BY created, id"
        found = [job_from_row(row) for row in self._rows(query)] if self.version > 1 else []
        return tuple((open_records[job.cluster_uid], job) for job in found if job.cluster_uid in open_records)

    def clusters_going_down(self) -> tuple[ClusterRecord, ...]:
        """Return the clusters whose teardown was requested and is not complete, oldest first."""
        query = "SELECT * FROM clusters WHERE wanted = 'down' AND gone IS NULL ORDER BY created"
        return tuple(cluster_from_row(row) for row in self._rows(query))

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """Return all pipelines, oldest first."""
        return tuple(pipeline_from_row(row) for row in self._rows("SELECT * FROM pipelines ORDER BY created, uid"))

    def pipeline(self, uid: str) -> PipelineRecord:
        """Return one pipeline. Raises NotFoundError when there is none."""
        for row in self._rows("SELECT * FROM pipelines WHERE uid = ?", uid):
            return pipeline_from_row(row)
        raise NotFoundError(f"no pipeline {uid}", next_step="orch status")

    def host_pin(self, name: str) -> HostPin | None:
        """Return the pin of one of people's own machines, or None; see HostAddress.pin_name."""
        for row in self._rows("SELECT * FROM host_pins WHERE name = ?", name):
            return host_pin_from_row(row)
        return None

    def events(self, cluster: str | None, *, after: int = 0, limit: int = 1000) -> tuple[EventRecord, ...]:
        """Return the newest `limit` events past sequence number `after`, oldest first."""
        only = "" if cluster is None else "AND cluster = ? "
        query = f"SELECT * FROM events WHERE seq > ? {only}ORDER BY seq DESC LIMIT ?"  # noqa: S608  # constant parts
        values = (after, limit) if cluster is None else (after, cluster, limit)
        return tuple(event_from_row(row) for row in reversed(list(self._rows(query, *values))))

    def all_events(self) -> Iterator[EventRecord]:
        """Yield the complete audit, oldest first, for replay.verify and replay.rebuild."""
        for row in self._rows("SELECT * FROM events ORDER BY seq"):
            yield event_from_row(row)

    def head(self) -> Head:
        """Return the head of the event chain."""
        return Head.parse(self._meta("chain") or str(Head()))

    def rows(self, table: str) -> tuple[Mapping[str, Any], ...]:
        """Return all rows of a table of audited.KEYS, unconverted."""
        return tuple(self._rows(f"SELECT * FROM {table}"))  # noqa: S608  # a constant name

    def find_page_fault(self) -> str:
        """Return what SQLite finds wrong with the file's pages, or ""."""
        found = [str(row["quick_check"]) for row in self._rows("PRAGMA quick_check(1)")]
        return "" if found in ([], ["ok"]) else found[0]

    def lease_time(self) -> float:
        """Return the seconds in which leases expire; see leases.py."""
        return SteadyClock(self._file.parent).uncorrected()

    def lease_holder(self, name: str) -> str:
        """Return a description of the lease's holder, or "" when it is free."""
        query = "SELECT * FROM leases WHERE name = ? AND owner != '' AND expires > ?"
        for row in self._rows(query, name, self.lease_time()):
            return f"process {row['pid']} on {row['machine']} ({row['doing']})"
        return ""

    def _meta(self, key: str) -> str | None:
        for row in self._rows("SELECT value FROM meta WHERE key = ?", key):
            return str(row["value"])
        return None

    @property
    def version(self) -> int:
        """The version of the tables; an absent store counts as one of version 1 without rows."""
        return int(self._meta("schema") or "1")

    def _refuse_newer(self, place: str) -> None:
        try:
            version = self.version
        except StoreError:
            return  # the first real read reports it
        if version > SCHEMA_VERSION:
            raise newer_store_error(place, version)

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        """Return all rows by column name, read completely, so that a slow user of the rows does not hold the file."""
        if self._connection is None:
            return []
        try:
            return [dict(row) for row in self._connection.execute(query, values)]
        except sqlite3.DatabaseError as error:
            if str(error).startswith("no such table"):
                return []  # an older version, or made by a command that was killed before its first write
            raise translate_file_error(error, self._file, reading=True) from error


_UNWRITABLE = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR_SHM")


def _open(database: Path) -> sqlite3.Connection:
    """Open a read-only connection.

    In a folder that is not writable, or on a full disk, SQLite reads a file without its log only as immutable. That is
    right where no -wal file exists: then no process has the store open for writing. Where a killed command has left
    one, a copy of both is read.
    """
    uri = f"{database.as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.DatabaseError as error:
        closed = str(getattr(error, "sqlite_errorname", "")).startswith(_UNWRITABLE)
        if closed:
            connection.close()
            log = database.with_name(database.name + "-wal")
            connection = _open_copy(database, log) if log.exists() else sqlite3.connect(f"{uri}&immutable=1", uri=True)
            connection.row_factory = sqlite3.Row
    return connection


def _open_copy(database: Path, log: Path) -> sqlite3.Connection:
    """Open a copy of a file and its log in memory, or where temporary files are; it ends with the connection."""
    import shutil  # these two cost a light command 5 ms, and are hardly ever needed
    import tempfile

    memory = Path("/dev/shm")  # noqa: S108  # tmpfs; the folder in it is new, and this user's alone
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for path in (database, log):
            shutil.copyfile(path, Path(folder, path.name))
        connection = sqlite3.connect(Path(folder, database.name))
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    return connection
