"""Changes of jobs and their attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import Table, func, or_, select

from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.plan.observed import EndedAttempt, Outcome
from orchestrator.project import to_column
from orchestrator.store.audited import format_subject
from orchestrator.store.change import EventDetails, Guard, RowChange, complete_row, insert_row, update_row
from orchestrator.store.job_end import HostRun, find_end
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.pipeline_changes import guard_pipeline
from orchestrator.store.records import (
    ClusterRecord,
    JobRecord,
    NewJob,
    cluster_from_row,
    ended_from_row,
    job_from_row,
    pipeline_from_row,
)
from orchestrator.store.schema import UNENDED_JOB, attempts, clusters, events, intents, jobs, pipelines


class JobChanges(Ledger):
    """The changes of jobs and attempts.

    A method that is given a lease writes nothing and raises ConflictError when the lease is no longer held.
    """

    def open_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """Open a job with the next number of its cluster. Two that run at the same time get two numbers.

        Raises:
            ConflictError: it is a stage of a pipeline that has ended, or is being ended.
        """
        for at in self._tries(f"the list of jobs of '{cluster.name}'"):
            unended = self._guard_pipeline(new)
            highest, newest = self._read_highest(cluster)
            number = highest + 1
            values = {"cluster_uid": cluster.uid, "id": number, "opened_at": newest, "created": at} | _columns_of(new)
            verb = "queued" if new.queued else "opened"
            what = f"job {number} {verb} ({new.kind})" + (f", run {new.run_id}" if new.run_id else "")
            opened = insert_row(jobs, values, EventDetails(cluster=cluster.qualified_name, kind="job", what=what))
            if self.change(opened, at=at, guards=(_is_newest(cluster, newest), *unended)) == (True,):
                return job_from_row(complete_row(jobs, values))
        raise AssertionError  # _tries has raised

    def queue_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """Open a job that waits for its turn; `take_from_queue` ends the waiting."""
        return self.open_job(cluster, replace(new, queued=True))

    def take_from_queue(self, lease: Lease, cluster: ClusterRecord, job: int) -> None:
        """Move a job from queued to pending. Raises ConflictError when it was ended in the meantime."""
        for at in self._tries(f"job {job}"):
            record, newest = self.job(cluster, job), self._read_highest(cluster)[1]
            if record.state == "ended":
                raise ConflictError(
                    f"job {job} of '{cluster.name}' left the queue meanwhile", "it was ended", "orch status"
                )
            guards = (guard_unchanged_job(record), _is_newest(cluster, newest))
            values = {"state": "pending", "opened_at": newest} if record.state == "queued" else {}
            turn = _update(cluster, job, values, f"job {job}: its turn has come")
            if self.change(turn, at=at, lease=lease, guards=guards) is not None:
                return

    def cancel_job(self, cluster: ClusterRecord, job: int) -> None:
        """Cancel a job.

        A job that has not started ends here. A started one is stopped first, by whoever drives it or by the caller.
        """
        for at in self._tries(f"job {job}"):
            record = self.job(cluster, job)
            if record.state == "ended":
                return
            if record.started:
                change = _update(cluster, job, {"state": "cancelling"}, f"job {job} is being cancelled")
            else:
                outcome = Outcome(status=Exit.INTERRUPTED, code="cancelled", what=f"job {job} was cancelled")
                change = make_job_end(cluster, job, outcome, max(at, record.created))
            if self.change(change, at=at, guards=(guard_unchanged_job(record),)) is not None:
                return

    def set_watch(self, cluster: ClusterRecord, job: int, watch: str, launch_request: str = "") -> None:
        """Record who drives a job.

        Args:
            cluster: the cluster of the job.
            job: number of the job.
            watch: "" for a command in the foreground, "engine" for unattended engines.
            launch_request: replaces the one on record, unless "".
        """
        who = "unattended engines" if watch else "a command in the foreground"
        values = {"watch": watch, "launch_request": launch_request} if launch_request else {"watch": watch}
        self.change(_update(cluster, job, values, f"job {job} is driven by {who}"), at=self._now())

    def job(self, cluster: ClusterRecord, number: int) -> JobRecord:
        """Return one job, which must exist."""
        query = select(jobs).where(jobs.c.cluster_uid == cluster.uid, jobs.c.id == number)
        return self._read_one(query, job_from_row)

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        """Return the jobs of a cluster by number."""
        query = select(jobs).where(jobs.c.cluster_uid == cluster.uid).order_by(jobs.c.id)
        return self._read_all(query, job_from_row)

    def pipeline_jobs(self, uid: str) -> tuple[JobRecord, ...]:
        """Return the jobs of a pipeline's stages by stage and age, of open and closed clusters."""
        query = select(jobs).where(jobs.c.pipeline == uid).order_by(jobs.c.stage, jobs.c.created, jobs.c.id)
        return self._read_all(query, job_from_row)

    def unattended_jobs(self) -> tuple[tuple[ClusterRecord, JobRecord], ...]:
        """Return the unfinished jobs that unattended engines drive, of open clusters, oldest first.

        Reading reserves nothing: an engine takes the cluster's lease before it acts.
        """
        open_records = {record.uid: record for record in self._read_all(_open_clusters(), cluster_from_row)}
        query = select(jobs).where(jobs.c.watch == "engine", UNENDED_JOB)
        found = self._read_all(query.order_by(jobs.c.created, jobs.c.id), job_from_row)
        return tuple((open_records[job.cluster_uid], job) for job in found if job.cluster_uid in open_records)

    def unfinished_jobs(self) -> frozenset[tuple[str, int]]:
        """Return the cluster's uid and the number of each job that has not ended, whoever drives it."""
        found = self._read_all(select(jobs).where(UNENDED_JOB), job_from_row)
        return frozenset((job.cluster_uid, job.id) for job in found)

    def launch_requests(self) -> tuple[str, ...]:
        """Return the launch requests of all unfinished jobs of open clusters, whoever drives them."""
        open_uids = select(clusters.c.uid).where(clusters.c.gone.is_(None))
        query = select(jobs.c.launch_request).where(
            UNENDED_JOB, jobs.c.launch_request != "", jobs.c.cluster_uid.in_(open_uids)
        )
        return self._read_all(query, lambda row: str(row["launch_request"]))

    def tasks_that_name(self, word: str, since: float) -> tuple[str, ...]:
        """Return the tasks with a word in their JSON, of all jobs of open clusters and of those made after `since`."""
        open_uids = select(clusters.c.uid).where(clusters.c.gone.is_(None))
        kept = or_(jobs.c.cluster_uid.in_(open_uids), jobs.c.created >= since)
        query = select(jobs.c.task).where(jobs.c.task.contains(word, autoescape=True), kept)
        return self._read_all(query, lambda row: str(row["task"]))

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """Return the newest job of a run with its cluster's name, of open and closed clusters; None without one."""
        query = (
            select(jobs, clusters.c.name.label("cluster_name"))
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(jobs.c.run_id == run_id, clusters.c.project == to_column(self.project))
            .order_by(jobs.c.created.desc())
        )
        return self._read_first(query, lambda row: (str(row["cluster_name"]), job_from_row(row)))

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """Return the newest launch or resume on clusters of this name, open or closed; None without one."""
        query = (
            select(jobs)
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(clusters.c.name == cluster, clusters.c.project == to_column(self.project), jobs.c.kind != "exec")
            .order_by(jobs.c.created.desc())
        )
        return self._read_first(query, job_from_row)

    def start_attempt(self, cluster: ClusterRecord, job: int, *, lease: Lease | None = None) -> None:
        """Record that the program may be running; committed before it is started.

        A job that is being cancelled keeps that state and is stopped at the next observation.

        Raises:
            ConflictError: the job was ended in the meantime.
        """
        for at in self._tries(f"job {job}"):
            record = self.job(cluster, job)
            if record.state == "ended":
                raise ConflictError(f"job {job} of '{cluster.name}' was ended meanwhile", next_step="orch status")
            values = {"started": True, "state": "cancelling" if record.state == "cancelling" else "running"}
            started = _update(cluster, job, values, f"job {job} is being started")
            if self.change(started, at=at, lease=lease, guards=(guard_unchanged_job(record),)) is not None:
                return

    def end_attempt(
        self, cluster: ClusterRecord, job: int, verdict: EndedAttempt, *, lease: Lease | None = None
    ) -> None:
        """Record why an attempt is being ended, before its program is stopped.

        Set once. The job keeps its attempt until `next_attempt`.
        """
        for at in self._tries(f"job {job}"):
            changes, guards = self._end_attempt(cluster, job, verdict, None, at)
            if self.change(*changes, at=at, lease=lease, guards=guards) is not None:
                return

    def next_attempt(
        self, cluster: ClusterRecord, job: int, ended: EndedAttempt, attempt: int, *, started_at: float | None = None,
        lease: Lease | None = None,
    ) -> None:  # fmt: skip
        """Record the end of one attempt and the number of the next. Written again, it changes nothing.

        A verdict that `end_attempt` recorded stays; only its missing columns are filled in.
        """
        for at in self._tries(f"job {job}"):
            record = self.job(cluster, job)
            changes, guards = self._end_attempt(cluster, job, ended, started_at, at)
            if record.attempt == ended.attempt and record.state != "ended":
                values = {"attempt": attempt, "started": False}
                reason = f"{ended.cause}: {ended.why}"
                changes += (_update(cluster, job, values, f"job {job} continues with attempt {attempt}", reason),)
            if self.change(*changes, at=at, lease=lease, guards=(*guards, guard_unchanged_job(record))) is not None:
                return

    def ended_attempts(self, cluster: ClusterRecord, job: int) -> tuple[EndedAttempt, ...]:
        query = select(attempts).where(attempts.c.cluster_uid == cluster.uid, attempts.c.job_id == job)
        return self._read_all(query.order_by(attempts.c.attempt), ended_from_row)

    def record_outcome(
        self, cluster: ClusterRecord, job: int, outcome: Outcome, *, lease: Lease | None = None,
        run: HostRun | None = None,
    ) -> None:  # fmt: skip
        """End a job with its outcome, once: an ended job keeps the outcome it has.

        Args:
            cluster: the cluster of the job.
            job: number of the job.
            outcome: how it ended.
            lease: only its present holder records it.
            run: what its hosts measured of the newest attempt; it decides when the job ended.
        """
        for at in self._tries(f"job {job}"):
            record = self.job(cluster, job)
            started = self._started_at(cluster, job) if run is not None else None
            end = find_end(created=record.created, started=started, at=at, run=run)
            changes = (make_job_end(cluster, job, outcome, end),) if record.state != "ended" else ()
            if self.change(*changes, at=at, lease=lease, guards=(guard_unchanged_job(record),)) is not None:
                return

    def _read_highest(self, cluster: ClusterRecord) -> tuple[int, int]:
        """Return the highest number of the cluster's jobs, and its newest generation; 0 for none."""
        highest = select(func.max(jobs.c.id)).where(jobs.c.cluster_uid == cluster.uid).scalar_subquery()
        newest = select(func.max(intents.c.generation)).where(intents.c.cluster_uid == cluster.uid).scalar_subquery()
        query = select(func.coalesce(highest, 0).label("highest"), func.coalesce(newest, 0).label("newest"))
        return self._read_one(query, lambda row: (int(row["highest"]), int(row["newest"])))

    def _end_attempt(
        self, cluster: ClusterRecord, job: int, ended: EndedAttempt, started_at: float | None, at: float
    ) -> tuple[tuple[RowChange, ...], tuple[Guard, ...]]:
        """Return the change that records an end, or fills in its missing columns, and what it was made from."""
        key: dict[str, Any] = {"cluster_uid": cluster.uid, "job_id": job, "attempt": ended.attempt}
        found = self._read_first(select(attempts).filter_by(**key), lambda row: {**row})
        facts = {
            "generation": ended.generation,
            "started_at": started_at if started_at is not None else self._started_at(cluster, job),
            "exit_code": ended.exit_code,
            "rank": ended.rank,
        }
        reason = f"{ended.cause}: {ended.why}"
        if found is None:
            values = {"cause": ended.cause.value, "why": ended.why, "at": ended.at or at, "evidence": ended.evidence}
            details = _attempt_event(cluster, f"job {job}: attempt {ended.attempt} ended ({reason})", reason)
            return (insert_row(attempts, key | values | facts, details),), (_guard(attempts, key, None),)
        learned = {column: value for column, value in facts.items() if found[column] is None and value is not None}
        details = _attempt_event(cluster, f"job {job}: missing columns of attempt {ended.attempt} filled in", reason)
        guard = _guard(attempts, key, {column: found[column] for column in facts})
        return ((update_row(attempts, key, learned, details),) if learned else ()), (guard,)

    def _guard_pipeline(self, new: NewJob) -> tuple[Guard, ...]:
        """Return the guard that the pipeline of a job may start it; none for other jobs."""
        query = select(pipelines).where(pipelines.c.uid == new.pipeline)
        pipeline = self._read_first(query, pipeline_from_row) if new.pipeline else None
        if pipeline is None:
            return ()
        if not pipeline.may_continue:
            raise ConflictError(f"pipeline '{pipeline.name}' was ended meanwhile", next_step="orch queue --all")
        return (guard_pipeline(pipeline),)

    def _started_at(self, cluster: ClusterRecord, job: int) -> float | None:
        """Return when the newest attempt was started: the newest event that set the column `started`.

        Events of the kind "upgrade" are left out: their time is that of the migration. A text in JSON that contains
        the pattern has its quotes escaped.
        """
        about = format_subject("jobs", {"cluster_uid": cluster.uid, "id": job})
        mine = (events.c.cluster == cluster.qualified_name) & (events.c.subject == about) & (events.c.kind == "job")
        query = select(events.c.at).where(mine, events.c.after.contains('"started": true', autoescape=True))
        return self._read_first(query.order_by(events.c.seq.desc()), lambda row: float(row["at"]))


def _columns_of(new: NewJob) -> dict[str, Any]:
    return {
        "kind": new.kind,
        "run_id": new.run_id,
        "digest": new.digest,
        "task": new.task,
        "bucket": new.bucket,
        "attempt": new.first_attempt,
        "started": False,
        "state": "queued" if new.queued else "pending",
        "ranks": json.dumps(new.ranks) if new.ranks is not None else None,
        "after_end": new.after_end,
        "launch_request": new.launch_request,
        "watch": new.watch,
        "pipeline": new.pipeline,
        "stage": new.stage,
    }


def make_job_end(cluster: ClusterRecord, job: int, outcome: Outcome, at: float) -> RowChange:
    """Return the change that ends a job."""
    values: dict[str, Any] = {
        "state": "ended",
        "status": outcome.status,
        "code": outcome.code,
        "what": outcome.what,
        "why": outcome.why,
        "next_step": str(outcome.next_step),
        "ended": at,
    }
    what = f"job {job} ended: {outcome.what} (status {outcome.status})"
    return _update(cluster, job, values, what, outcome.why or outcome.what)


def _open_clusters() -> Any:
    return select(clusters).where(clusters.c.gone.is_(None))


def guard_unchanged_job(job: JobRecord) -> Guard:
    """Return the guard that a job is as it was read, in what its changes depend on."""
    values = {"state": job.state, "started": job.started, "attempt": job.attempt}
    return _guard(jobs, {"cluster_uid": job.cluster_uid, "id": job.id}, values)


def _is_newest(cluster: ClusterRecord, generation: int) -> Guard:
    return _guard(intents, {"cluster_uid": cluster.uid, "generation": generation + 1}, None)


def _guard(table: Table, key: dict[str, Any], values: dict[str, Any] | None) -> Guard:
    return Guard(table=table, key=key, values=values)


def _attempt_event(cluster: ClusterRecord, what: str, reason: str) -> EventDetails:
    return EventDetails(cluster=cluster.qualified_name, kind="attempt", what=what, cause=reason)


def _update(cluster: ClusterRecord, job: int, values: dict[str, Any], what: str, cause: str = "") -> RowChange:
    details = EventDetails(cluster=cluster.qualified_name, kind="job", what=what, cause=cause)
    return update_row(jobs, {"cluster_uid": cluster.uid, "id": job}, values, details)
