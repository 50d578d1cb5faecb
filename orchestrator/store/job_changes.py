"""Changes of jobs and their attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.plan.observed import EndedAttempt, Outcome
from orchestrator.project import to_column
from orchestrator.store.audited import format_subject
from orchestrator.store.change import Change, EventDetails
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import (
    ClusterRecord,
    JobRecord,
    NewJob,
    cluster_from_row,
    ended_from_row,
    job_from_row,
)
from orchestrator.store.schema import attempts, clusters, events, intents, jobs


class JobChanges(Ledger):
    """The changes of jobs and attempts.

    A method that is given a lease writes nothing and raises ConflictError when the lease is no longer held.
    """

    def open_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """Open a job with the next number of its cluster. Two that run at the same time get two numbers."""
        with self.changing() as change:
            number = _highest(change, jobs.c.id, jobs.c.cluster_uid, cluster) + 1
            values: dict[str, Any] = {
                "cluster_uid": cluster.uid,
                "id": number,
                "kind": new.kind,
                "run_id": new.run_id,
                "digest": new.digest,
                "task": new.task,
                "bucket": new.bucket,
                "attempt": new.first_attempt,
                "started": False,
                "opened_at": _highest(change, intents.c.generation, intents.c.cluster_uid, cluster),
                "state": "queued" if new.queued else "pending",
                "created": change.at,
                "ranks": json.dumps(new.ranks) if new.ranks is not None else None,
                "after_end": new.after_end,
                "wish": new.launch_request,
                "watch": new.watch,
                "pipeline": new.pipeline,
                "stage": new.stage,
            }
            verb = "queued" if new.queued else "opened"
            what = f"job {number} {verb} ({new.kind})" + (f", run {new.run_id}" if new.run_id else "")
            change.insert(jobs, values, EventDetails(cluster=cluster.qualified_name, kind="job", what=what))
            return _read_job(change, cluster, number)

    def queue_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """Open a job that waits for its turn; `take_from_queue` ends the waiting."""
        return self.open_job(cluster, replace(new, queued=True))

    def take_from_queue(self, lease: Lease, cluster: ClusterRecord, job: int) -> None:
        """Move a job from queued to pending. Raises ConflictError when it was ended in the meantime."""
        with self.changing(lease) as change:
            state = _read_job(change, cluster, job).state
            if state == "ended":
                raise ConflictError(
                    f"job {job} of '{cluster.name}' left the queue meanwhile", "it was ended", "orch status"
                )
            if state == "queued":
                newest = _highest(change, intents.c.generation, intents.c.cluster_uid, cluster)
                values = {"state": "pending", "opened_at": newest}
                _update(change, cluster, job, values, f"job {job}: its turn has come")

    def cancel_job(self, cluster: ClusterRecord, job: int) -> None:
        """Cancel a job.

        A job that has not started ends here. A started one is stopped first, by whoever drives it or by the caller.
        """
        with self.changing() as change:
            record = _read_job(change, cluster, job)
            if record.state == "ended":
                return
            if not record.started:
                _record_outcome(
                    change,
                    cluster,
                    job,
                    Outcome(status=Exit.INTERRUPTED, code="cancelled", what=f"job {job} was cancelled"),
                )
            else:
                _update(change, cluster, job, {"state": "cancelling"}, f"job {job} is being cancelled")

    def set_watch(self, cluster: ClusterRecord, job: int, watch: str, launch_request: str = "") -> None:
        """Record who drives a job.

        Args:
            cluster: the cluster of the job.
            job: number of the job.
            watch: "" for a command in the foreground, "engine" for unattended engines.
            launch_request: replaces the one on record, unless "".
        """
        with self.changing() as change:
            who = "unattended engines" if watch else "a command in the foreground"
            values = {"watch": watch, "wish": launch_request} if launch_request else {"watch": watch}
            _update(change, cluster, job, values, f"job {job} is driven by {who}")

    def job(self, cluster: ClusterRecord, number: int) -> JobRecord:
        """Return one job, which must exist."""
        with self._database.reading() as tx:
            return job_from_row(tx.execute(_select_job(cluster, number)).mappings().one())

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
        query = select(jobs).where(jobs.c.watch == "engine", jobs.c.state != "ended")
        found = self._read_all(query.order_by(jobs.c.created, jobs.c.id), job_from_row)
        return tuple((open_records[job.cluster_uid], job) for job in found if job.cluster_uid in open_records)

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
        with self.changing(lease) as change:
            state = _read_job(change, cluster, job).state
            if state == "ended":
                raise ConflictError(f"job {job} of '{cluster.name}' was ended meanwhile", next_step="orch status")
            values = {"started": True, "state": "cancelling" if state == "cancelling" else "running"}
            _update(change, cluster, job, values, f"job {job} is being started")

    def end_attempt(
        self, cluster: ClusterRecord, job: int, verdict: EndedAttempt, *, lease: Lease | None = None
    ) -> None:
        """Record why an attempt is being ended, before its program is stopped.

        Set once. The job keeps its attempt until `next_attempt`.
        """
        with self.changing(lease) as change:
            _end_attempt(change, cluster, job, verdict, None)

    def next_attempt(
        self, cluster: ClusterRecord, job: int, ended: EndedAttempt, attempt: int, *, started_at: float | None = None,
        lease: Lease | None = None,
    ) -> None:  # fmt: skip
        """Record the end of one attempt and the number of the next. Written again, it changes nothing.

        A verdict that `end_attempt` recorded stays; only its missing columns are filled in.
        """
        with self.changing(lease) as change:
            _end_attempt(change, cluster, job, ended, started_at)
            record = _read_job(change, cluster, job)
            if record.attempt == ended.attempt and record.state != "ended":
                values = {"attempt": attempt, "started": False}
                reason = f"{ended.cause}: {ended.why}"
                _update(change, cluster, job, values, f"job {job} continues with attempt {attempt}", reason)

    def ended_attempts(self, cluster: ClusterRecord, job: int) -> tuple[EndedAttempt, ...]:
        query = select(attempts).where(attempts.c.cluster_uid == cluster.uid, attempts.c.job_id == job)
        return self._read_all(query.order_by(attempts.c.attempt), ended_from_row)

    def record_outcome(self, cluster: ClusterRecord, job: int, outcome: Outcome, *, lease: Lease | None = None) -> None:
        """End a job with its outcome, once: an ended job keeps the outcome it has."""
        with self.changing(lease) as change:
            if _read_job(change, cluster, job).state != "ended":
                _record_outcome(change, cluster, job, outcome)


def _record_outcome(change: Change, cluster: ClusterRecord, job: int, outcome: Outcome) -> None:
    values: dict[str, Any] = {
        "state": "ended",
        "status": outcome.status,
        "code": outcome.code,
        "what": outcome.what,
        "why": outcome.why,
        "next_step": outcome.next_step,
        "ended": change.at,
    }
    what = f"job {job} ended: {outcome.what} (status {outcome.status})"
    _update(change, cluster, job, values, what, outcome.why or outcome.what)


def _select_job(cluster: ClusterRecord, number: int) -> Any:
    return select(jobs).where(jobs.c.cluster_uid == cluster.uid, jobs.c.id == number)


def _read_job(change: Change, cluster: ClusterRecord, number: int) -> JobRecord:
    """Return a job inside a transaction, so that no decision is made on a value that is unknown."""
    return job_from_row(change.tx.execute(_select_job(cluster, number)).mappings().one())


def _open_clusters() -> Any:
    return select(clusters).where(clusters.c.gone.is_(None))


def _highest(change: Change, column: Any, owner: Any, cluster: ClusterRecord) -> int:
    return int(change.tx.execute(select(func.max(column)).where(owner == cluster.uid)).scalar() or 0)


def _end_attempt(
    change: Change, cluster: ClusterRecord, job: int, ended: EndedAttempt, started_at: float | None
) -> None:
    key: dict[str, Any] = {"cluster_uid": cluster.uid, "job_id": job, "attempt": ended.attempt}
    facts = {
        "generation": ended.generation,
        "started_at": started_at if started_at is not None else _started_at(change, cluster, job),
        "exit_code": ended.exit_code,
        "rank": ended.rank,
    }
    values = {"cause": ended.cause.value, "why": ended.why, "at": ended.at or change.at, "evidence": ended.evidence}
    reason = f"{ended.cause}: {ended.why}"
    what = f"job {job}: attempt {ended.attempt} ended ({reason})"
    if change.insert(
        attempts,
        key | values | facts,
        EventDetails(cluster=cluster.qualified_name, kind="attempt", what=what, cause=reason),
    ):
        return
    found = change.tx.execute(select(attempts).filter_by(**key)).mappings().one()
    learned = {column: value for column, value in facts.items() if found[column] is None and value is not None}
    if learned:
        what = f"job {job}: missing columns of attempt {ended.attempt} filled in"
        change.update(
            attempts,
            key,
            learned,
            EventDetails(cluster=cluster.qualified_name, kind="attempt", what=what, cause=reason),
        )


def _started_at(change: Change, cluster: ClusterRecord, job: int) -> float | None:
    """Return when the newest attempt was started: the newest event that set the column `started`.

    Events of the kind "upgrade" are left out: their time is that of the migration.
    """
    about = format_subject("jobs", {"cluster_uid": cluster.uid, "id": job})
    mine = (events.c.cluster == cluster.qualified_name) & (events.c.subject == about) & (events.c.kind == "job")
    query = select(events.c.at, events.c.after).where(mine, events.c.after.is_not(None))
    for at, after in change.tx.execute(query.order_by(events.c.seq.desc())):
        if json.loads(after).get("started") is True:
            return float(at)
    return None


def _update(
    change: Change, cluster: ClusterRecord, job: int, values: dict[str, Any], what: str, cause: str = ""
) -> None:
    change.update(
        jobs,
        {"cluster_uid": cluster.uid, "id": job},
        values,
        EventDetails(cluster=cluster.qualified_name, kind="job", what=what, cause=cause),
    )
