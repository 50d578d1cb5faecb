"""A reader of the store that needs only the standard library, for commands that must answer immediately.

It never writes and never creates the file. A file that is to be upgraded is read as it is. PostgreSQL: read_server.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.acting import find_acting_member
from orchestrator.clock import SteadyClock
from orchestrator.computer import read_member
from orchestrator.errors import NotFoundError
from orchestrator.plan.observed import EndedAttempt, Intent
from orchestrator.project import DEFAULT_PROJECT, to_column
from orchestrator.store.conditions import where_in
from orchestrator.store.failures import StoreError, refuse_truncated_file, translate_file_error
from orchestrator.store.location import Location
from orchestrator.store.project_limit import limit_query
from orchestrator.store.read_events import EventReads, ProgressReads
from orchestrator.store.read_leases import LeaseReads
from orchestrator.store.read_only_file import open_read_only
from orchestrator.store.read_rows import RowReads
from orchestrator.store.read_team import TeamReads
from orchestrator.store.records import (
    ClusterRecord,
    JobRecord,
    PipelineRecord,
    cluster_from_row,
    ended_from_row,
    intent_from_row,
    job_from_row,
    pipeline_from_row,
)
from orchestrator.store.version import (
    EARLIER,
    MIN_READER,
    MIN_WRITER,
    OPEN_CLUSTERS,
    SCHEMA_VERSION,
    VERSION,
    newer_store_error,
    parse_versions,
    refuse_earlier,
)

if TYPE_CHECKING:
    from orchestrator.store.backup_note import BackupNote
    from orchestrator.store.bill_records import BillRecord
    from orchestrator.store.other_state import Tie

_PART = 500  # values of one query


def open_reader_at(location: Location, project: str = DEFAULT_PROJECT, only_project: str = "") -> Reader:
    """Return a reader of the SQLite file or the PostgreSQL database at `location`, for a command in this project.

    Args:
        location: The store.
        project: In which clusters are found by their names.
        only_project: The only one whose records are seen; "" for every project.
    """
    if isinstance(location, Path):
        reader = Reader(location, project)
    else:
        from orchestrator.store.read_server import ServerReader

        reader = ServerReader(location, project)
    reader.only_project = only_project
    return reader


class Reader(TeamReads, LeaseReads, RowReads, EventReads, ProgressReads):
    """A read-only view of the store, used as a context manager. An absent store reads as an empty one.

    Attributes:
        project: in which clusters are found by their names.
        only_project: the only one whose records are seen; "" for every project.
        asking_member: for whom a service reads; "" for the person at this computer.
    """

    only_project = ""
    asking_member = ""

    def __init__(self, database: Path, project: str = DEFAULT_PROJECT) -> None:
        self.project = project
        self._file = database
        self._connection: sqlite3.Connection | None = None
        if database.exists():
            refuse_truncated_file(database, reading=True)
            self._connection = open_read_only(database)
            self._refuse_other_version(str(database))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def member(self) -> str:
        """For whom it reads: see Ledger.member."""
        return self.asking_member or find_acting_member() or read_member()

    def installation(self) -> str | None:
        """Return the installation's name, None for an absent store."""
        return self._meta("installation")

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return the open clusters of all projects by name and age."""
        rows = self._rows("SELECT * FROM clusters WHERE gone IS NULL ORDER BY name, created")
        return tuple(cluster_from_row(row) for row in rows)

    def cluster(self, name: str) -> ClusterRecord | None:
        """Return the open cluster of this name, or None."""
        found = self._named("SELECT * FROM clusters WHERE gone IS NULL AND name = ?", name)
        return next(found, None)

    def deleted_cluster(self, name: str) -> ClusterRecord | None:
        """Return the newest closed cluster of this name, whose jobs and logs are still on record; None without one."""
        found = self._named("SELECT * FROM clusters WHERE gone IS NOT NULL AND name = ? ORDER BY gone DESC", name)
        return next(found, None)

    def count_clusters(self, name: str) -> int:
        """Return how many clusters of this name are on record, the deleted ones too."""
        return sum(1 for _ in self._named("SELECT * FROM clusters WHERE name = ?", name))

    def _named(self, query: str, name: str) -> Iterator[ClusterRecord]:
        """Return the clusters of the project among those of a name."""
        records = (cluster_from_row(row) for row in self._rows(query, name))
        return (record for record in records if record.project == self.project)

    def cluster_names(self, project: str = "", owner: str = "") -> frozenset[str]:
        """Return the names of the clusters on record of a project and a member, or of all, the deleted ones too."""
        only, values = _where_clusters(project, owner)
        query = f"SELECT DISTINCT name FROM clusters WHERE name <> ''{only}"  # noqa: S608  # constant parts
        return frozenset(str(row["name"]) for row in self._rows(query, *values))

    def clusters_by_uid(self, uids: Collection[str] | None = None) -> dict[str, ClusterRecord]:
        """Return the clusters of these uids, or every cluster, of all projects and the deleted ones too."""
        only, values = where_in("uid", uids)
        rows = self._rows(f"SELECT * FROM clusters WHERE {only}", *values)  # noqa: S608  # constant parts
        return {record.uid: record for record in map(cluster_from_row, rows)}

    def intents_by_uid(self, uids: Collection[str] | None = None) -> dict[str, tuple[Intent, ...]]:
        """Return the intents of these clusters, or of all, by the cluster's uid and then by generation."""
        only, values = where_in("cluster_uid", uids)
        query = f"SELECT * FROM intents WHERE {only} ORDER BY generation"  # noqa: S608  # constant parts
        found: dict[str, tuple[Intent, ...]] = {}
        for row in self._rows(query, *values):
            uid = str(row["cluster_uid"])
            found[uid] = (*found.get(uid, ()), intent_from_row(row))
        return found

    def intents_billed_since(self, since: float, uids: Collection[str]) -> dict[str, tuple[Intent, ...]]:
        """Return intents by the cluster's uid: those that are open or were billed since, and all of these clusters.

        Args:
            since: Epoch seconds.
            uids: Of the clusters.
        """
        only, values = where_in("cluster_uid", uids)
        billed = "born IS NOT NULL AND (gone IS NULL OR gone >= ?)"
        query = f"SELECT * FROM intents WHERE state NOT IN ('gone', 'refused') OR {billed} OR {only}"  # noqa: S608  # constant parts
        found: dict[str, list[Intent]] = {}
        for row in self._rows(query, since, *values):
            found.setdefault(str(row["cluster_uid"]), []).append(intent_from_row(row))
        return {uid: tuple(own) for uid, own in found.items()}

    def bills_since(self, since: float, uids: Collection[str]) -> tuple[BillRecord, ...]:
        """Return what bills say of the time since, in epoch seconds, and all that they say of these clusters."""
        from orchestrator.store.bill_records import bill_from_row

        only, values = where_in("cluster_uid", uids)
        query = f"SELECT * FROM bills WHERE until >= ? OR token IN (SELECT token FROM intents WHERE {only})"  # noqa: S608  # constant parts
        return tuple(map(bill_from_row, self._rows(query, since, *values)))

    def clusters_of_runs(self, run_ids: Collection[str]) -> frozenset[str]:
        """Return the uids of the clusters that have jobs of these runs."""
        only, values = where_in("run_id", run_ids)
        query = f"SELECT DISTINCT cluster_uid FROM jobs WHERE kind != 'exec' AND {only}"  # noqa: S608  # constant parts
        return frozenset(str(row["cluster_uid"]) for row in self._rows(query, *values))

    def jobs_by_uid(self, uids: Collection[str] | None = None) -> dict[str, tuple[JobRecord, ...]]:
        """Return the launches and resumes of these clusters, or of all, by the cluster's uid and then by number."""
        only, values = where_in("cluster_uid", uids)
        query = f"SELECT * FROM jobs WHERE kind != 'exec' AND {only} ORDER BY cluster_uid, id"  # noqa: S608  # constant parts
        return self._group_jobs(query, *values)

    def jobs_during_runs(self, run_ids: Collection[str]) -> dict[str, tuple[JobRecord, ...]]:
        """Return the launches and resumes of these runs, and those that ended on their clusters since the first.

        They are all that says when each run had its machines, by the cluster's uid and then by number.
        """
        only, values = where_in("run_id", run_ids)
        chosen = f"kind != 'exec' AND {only}"
        query = (
            f"SELECT * FROM jobs WHERE kind != 'exec' AND cluster_uid IN (SELECT cluster_uid FROM jobs WHERE {chosen}) "  # noqa: S608  # constant parts
            f"AND (ended IS NULL OR ended >= (SELECT min(created) FROM jobs WHERE {chosen}) OR {only}) "
            "ORDER BY cluster_uid, id"
        )
        return self._group_jobs(query, *values, *values, *values)

    def _group_jobs(self, query: str, *values: object) -> dict[str, tuple[JobRecord, ...]]:
        found: dict[str, list[JobRecord]] = {}
        for row in self._rows(query, *values):
            found.setdefault(str(row["cluster_uid"]), []).append(job_from_row(row))
        return {uid: tuple(own) for uid, own in found.items()}

    def find_job(self, uid: str, number: int) -> JobRecord | None:
        """Return one job of a cluster, of any kind; None without one."""
        return next(
            map(job_from_row, self._rows("SELECT * FROM jobs WHERE cluster_uid = ? AND id = ?", uid, number)), None
        )

    def count_jobs(self) -> dict[str, int]:
        """Return how many launches and resumes are in each state."""
        rows = self._rows("SELECT state, count(*) AS jobs FROM jobs WHERE kind != 'exec' GROUP BY state")
        return {str(row["state"]): int(row["jobs"]) for row in rows}

    def last_actors(self, column: Literal["cluster", "subject"], values: Iterable[str]) -> dict[str, str]:
        """Return who did the last change, as `user@computer:pid`, by qualified cluster name or by subject.

        Args:
            column: What the keys are.
            values: Those of interest.
        """
        found: dict[str, str] = {}
        left, newest = iter(set(values)), f"(SELECT max(seq) FROM events WHERE {column} = ?)"  # noqa: S608  # constant
        while part := tuple(islice(left, _PART)):  # each is one look into an index, however many events there are
            listed = ", ".join([newest] * len(part))
            query = f"SELECT {column} AS about, actor FROM events WHERE seq IN ({listed})"  # noqa: S608  # the same
            found |= {str(row["about"]): str(row["actor"]) for row in self._rows(query, *part)}
        return found

    def newest_runs(
        self, *, limit: int, before: float | None = None, project: str = "", owner: str = "", cluster: str = ""
    ) -> list[str]:
        """Return the ids of the newest runs by their newest job, newest first.

        Args:
            limit: The most.
            before: Only runs whose newest job was opened before this time, in epoch seconds.
            project: Only runs on clusters of this project; "" for all.
            owner: Only runs on clusters of this member; "" for all.
            cluster: Only runs on clusters of this name; "" for all.
        """
        only, values = _where_clusters(project, owner, cluster)
        source = "jobs JOIN clusters ON clusters.uid = jobs.cluster_uid" if only else "jobs"
        older = "" if before is None else " AND jobs.created < ?"
        values += [] if before is None else [before]
        # Sorting jobs costs a fraction of grouping them. The first job of a run is its newest; the others are skipped.
        query = (
            f"SELECT run_id FROM {source} WHERE kind != 'exec'{only}{older} "  # noqa: S608  # constant parts
            "ORDER BY jobs.created DESC LIMIT ?"
        )
        rows = limit
        while True:
            rows *= 2
            jobs = [str(row["run_id"]) for row in self._rows(query, *values, rows)]
            found = list(dict.fromkeys(jobs))
            newer = self._runs_opened_since(before, found) if before is not None else frozenset[str]()
            found = [run_id for run_id in found if run_id not in newer]
            if len(found) >= limit or len(jobs) < rows:
                return found[:limit]

    def _runs_opened_since(self, at: float, run_ids: Collection[str]) -> frozenset[str]:
        """Return those of some runs that have a job which was opened then or later."""
        only, values = where_in("run_id", run_ids)
        query = f"SELECT run_id FROM jobs WHERE kind != 'exec' AND created >= ? AND {only}"  # noqa: S608  # constant parts
        return frozenset(str(row["run_id"]) for row in self._rows(query, at, *values))

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
            "WHERE run_id = ? AND project = ? ORDER BY jobs.created DESC LIMIT 1"
        )
        rows = self._rows(query, run_id, to_column(self.project))
        return next(((str(row["cluster_name"]), job_from_row(row)) for row in rows), None)

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """Return the newest launch or resume on clusters of this name, open or closed; None without one."""
        found = [
            job for record in self._named("SELECT * FROM clusters WHERE name = ?", cluster) for job in self.jobs(record)
        ]
        return max((job for job in found if job.kind != "exec"), key=lambda job: job.created, default=None)

    def unattended_jobs(self) -> tuple[tuple[ClusterRecord, JobRecord], ...]:
        """Return the unfinished jobs that unattended engines drive, of open clusters, oldest first."""
        open_records = {record.uid: record for record in self.clusters()}
        query = "SELECT * FROM jobs WHERE watch = 'engine' AND state != 'ended' ORDER BY created, id"
        found = [job_from_row(row) for row in self._rows(query)]
        return tuple((open_records[job.cluster_uid], job) for job in found if job.cluster_uid in open_records)

    def clusters_going_down(self) -> tuple[ClusterRecord, ...]:
        """Return the clusters whose teardown was requested and is not complete, oldest first."""
        query = "SELECT * FROM clusters WHERE wanted = 'down' AND gone IS NULL ORDER BY created"
        return tuple(cluster_from_row(row) for row in self._rows(query))

    def pipelines(self, *, ended: bool) -> tuple[PipelineRecord, ...]:
        """Return the pipelines that have not ended, and with `ended` the others too, oldest first."""
        only = "1 = 1" if ended else "state NOT IN ('ended', 'cancelled')"
        query = f"SELECT * FROM pipelines WHERE {only} ORDER BY created, uid"  # noqa: S608  # constant parts
        return tuple(map(pipeline_from_row, self._rows(query)))

    def pipeline(self, uid: str) -> PipelineRecord:
        """Return one pipeline. Raises NotFoundError when there is none."""
        for row in self._rows("SELECT * FROM pipelines WHERE uid = ?", uid):
            return pipeline_from_row(row)
        raise NotFoundError(f"no pipeline {uid}", next_step="orch status")

    def pipelines_by_uid(self, uids: Collection[str]) -> dict[str, PipelineRecord]:
        """Return the pipelines of these uids that are on record."""
        only, values = where_in("uid", uids)
        rows = self._rows(f"SELECT * FROM pipelines WHERE {only}", *values)  # noqa: S608  # constant parts
        return {record.uid: record for record in map(pipeline_from_row, rows)}

    def pipeline_jobs(self, uid: str) -> tuple[JobRecord, ...]:
        """Return the jobs of a pipeline's stages by stage and age, of open and closed clusters."""
        query = "SELECT * FROM jobs WHERE pipeline = ? ORDER BY stage, created, id"
        return tuple(map(job_from_row, self._rows(query, uid)))

    def hold_snapshot(self) -> None:
        """Read one state of the store from here on, whatever others write meanwhile."""
        if self._connection is not None:
            self._connection.execute("BEGIN")

    @property
    def file(self) -> Path | None:
        """The path of the file; None for a database of a server."""
        return self._file

    def read_tie(self) -> Tie:
        """Return the place in which the store lies now."""
        from orchestrator.store.other_state import read_file_tie

        return read_file_tie(self._file)

    def find_page_fault(self) -> str:
        """Return what SQLite finds wrong with the file's pages, or ""."""
        found = [str(row["quick_check"]) for row in self._rows("PRAGMA quick_check(1)")]
        return "" if found in ([], ["ok"]) else found[0]

    def lease_time(self) -> float:
        return SteadyClock(self._file.parent).uncorrected()

    @property
    def incarnation(self) -> int:
        """How often the store was moved, copied or restored, from 1."""
        return int(self._meta("incarnation") or "1")

    def last_backup(self) -> BackupNote | None:
        """Return when and where the store was backed up last, None for never."""
        from orchestrator.store.backup_note import BackupNote

        return BackupNote.parse(self._meta("backup") or "")

    def _meta(self, key: str) -> str | None:
        for row in self._rows("SELECT value FROM meta WHERE key = ?", key):
            return str(row["value"])
        return None

    @property
    def version(self) -> int:
        """The version of the tables; an absent store counts as a new one without rows."""
        return parse_versions(self._versions()).tables

    def _versions(self) -> dict[str, str]:
        keys = (VERSION, MIN_READER, MIN_WRITER, EARLIER)
        query = f"SELECT key, value FROM meta WHERE key IN ({', '.join('?' * len(keys))})"  # noqa: S608  # marks alone
        return {str(row["key"]): str(row["value"]) for row in self._rows(query, *keys)}

    def _refuse_other_version(self, place: str) -> None:
        try:
            rows = self._versions()
        except StoreError:
            return  # the first real read reports it
        refuse_earlier(place, rows, lambda: [str(row["name"]) for row in self._rows(OPEN_CLUSTERS)])
        versions = parse_versions(rows)
        if versions.reader > SCHEMA_VERSION:
            raise newer_store_error(place, versions.tables)

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        """Return all rows by column name, read completely, so that a slow user of the rows does not hold the file."""
        if self._connection is None:
            return []
        if self.only_project:
            query = limit_query(query, self.only_project, "main.")
        try:
            rows = self._connection.execute(query, values)
            names = [column[0] for column in rows.description]
            return [dict(zip(names, row, strict=True)) for row in rows]
        except sqlite3.DatabaseError as error:
            if str(error).startswith("no such table"):
                return []  # to be upgraded, or made by a command that was killed before its first write
            raise translate_file_error(error, self._file, reading=True) from error


def _where_clusters(project: str, owner: str, name: str = "") -> tuple[str, list[object]]:
    """Return further conditions on clusters, each after an AND, and their values; "" is any project, owner or name."""
    conditions = [
        ("clusters.project", to_column(project), project),
        ("clusters.owner", owner, owner),
        ("clusters.name", name, name),
    ]
    only = "".join(f" AND {column} = ?" for column, _, given in conditions if given)
    return only, [value for _, value, given in conditions if given]
