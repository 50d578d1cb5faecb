"""Changes of jobs and their attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.plan.observed import Ended, Outcome
from orchestrator.store.audited import subject
from orchestrator.store.change import Change, Why
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
    """A lease, where one is given, must still be held, or nothing is written and ConflictError is raised."""

    def open_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """The next number on this cluster. Two at once get two numbers."""
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
                "after_end": new.after,
                "wish": new.wish,
                "watch": new.watch,
                "pipeline": new.pipeline,
                "stage": new.stage,
            }
            verb = "queued" if new.queued else "opened"
            what = f"job {number} {verb} ({new.kind})" + (f", run {new.run_id}" if new.run_id else "")
            change.insert(jobs, values, Why(cluster.name, "job", what))
            return job_from_row(change.tx.execute(_one(cluster, number)).mappings().one())

    def queue_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """A job that waits for its turn; see take_from_queue."""
        return self.open_job(cluster, replace(new, queued=True))

    def take_from_queue(self, lease: Lease, cluster: ClusterRecord, job: int) -> None:
        """Its turn has come: queued -> pending. Raises ConflictError when it was ended meanwhile."""
        with self.changing(lease) as change:
            state = change.tx.execute(_one(cluster, job)).mappings().one()["state"]
            if state == "ended":
                raise ConflictError(
                    f"job {job} of '{cluster.name}' left the queue meanwhile", "it was ended", "orch status"
                )
            if state == "queued":
                newest = _highest(change, intents.c.generation, intents.c.cluster_uid, cluster)
                values = {"state": "pending", "opened_at": newest}
                _update(change, cluster, job, values, f"job {job}: its turn has come")

    def cancel_job(self, cluster: ClusterRecord, job: int) -> None:
        """The user wants it ended. Not started: ended at once; else who drives it, or the caller, stops it first."""
        with self.changing() as change:
            row = change.tx.execute(_one(cluster, job)).mappings().one()
            if row["state"] == "ended":
                return
            if not row["started"]:
                _conclude(change, cluster, job, Outcome(Exit.INTERRUPTED, "cancelled", f"job {job} was cancelled"))
            else:
                _update(change, cluster, job, {"state": "cancelling"}, f"job {job} is being cancelled")

    def set_watch(self, cluster: ClusterRecord, job: int, watch: str, wish: str = "") -> None:
        """Who drives it: "" for a command in the foreground, "engine" for unattended engines. wish: where it is new."""
        with self.changing() as change:
            who = "unattended engines" if watch else "a command in the foreground"
            values = {"watch": watch, "wish": wish} if wish else {"watch": watch}
            _update(change, cluster, job, values, f"job {job} is driven by {who}")

    def job(self, cluster: ClusterRecord, number: int) -> JobRecord:
        with self._database.reading() as tx:
            return job_from_row(tx.execute(_one(cluster, number)).mappings().one())

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        query = select(jobs).where(jobs.c.cluster_uid == cluster.uid).order_by(jobs.c.id)
        return self._read_all(query, job_from_row)

    def pipeline_jobs(self, uid: str) -> tuple[JobRecord, ...]:
        """The jobs of a pipeline's stages, on whatever clusters, gone or not, oldest first."""
        query = select(jobs).where(jobs.c.pipeline == uid).order_by(jobs.c.stage, jobs.c.created, jobs.c.id)
        return self._read_all(query, job_from_row)

    def watchable(self) -> tuple[tuple[ClusterRecord, JobRecord], ...]:
        """Jobs that unattended engines shall drive and that are not ended, oldest first, on living clusters.

        Reading claims nothing: an engine takes the cluster's lease before it acts.
        """
        living = {record.uid: record for record in self._read_all(_living(), cluster_from_row)}
        query = select(jobs).where(jobs.c.watch == "engine", jobs.c.state != "ended")
        found = self._read_all(query.order_by(jobs.c.created, jobs.c.id), job_from_row)
        return tuple((living[job.cluster_uid], job) for job in found if job.cluster_uid in living)

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """The newest job of a run on any cluster, gone or not, with the cluster's name."""
        query = (
            select(jobs, clusters.c.name.label("cluster_name"))
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(jobs.c.run_id == run_id)
            .order_by(jobs.c.created.desc())
        )
        return self._read_first(query, lambda row: (str(row["cluster_name"]), job_from_row(row)))

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """The newest launch or resume under a cluster name, the cluster gone or not."""
        query = (
            select(jobs)
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(clusters.c.name == cluster, jobs.c.kind != "exec")
            .order_by(jobs.c.created.desc())
        )
        return self._read_first(query, job_from_row)

    def start_attempt(self, cluster: ClusterRecord, job: int, *, lease: Lease | None = None) -> None:
        """The program may be running from now on; committed before it is started.

        A job that is being cancelled stays so, and is stopped at the next look. Raises ConflictError when it is ended.
        """
        with self.changing(lease) as change:
            state = change.tx.execute(_one(cluster, job)).mappings().one()["state"]
            if state == "ended":
                raise ConflictError(f"job {job} of '{cluster.name}' was ended meanwhile", next_step="orch status")
            values = {"started": True, "state": "cancelling" if state == "cancelling" else "running"}
            _update(change, cluster, job, values, _starting(job))

    def end_attempt(self, cluster: ClusterRecord, job: int, verdict: Ended, *, lease: Lease | None = None) -> None:
        """Why the attempt is being ended, before its program is stopped. Set once; the job still stands at it."""
        with self.changing(lease) as change:
            _end_attempt(change, cluster, job, verdict, None)

    def next_attempt(
        self, cluster: ClusterRecord, job: int, ended: Ended, attempt: int, *, started_at: float | None = None,
        lease: Lease | None = None,
    ) -> None:  # fmt: skip
        """One attempt is over, the job goes on with `attempt`. Written again, it changes nothing.

        A verdict that end_attempt recorded stays; only what it did not know is filled in.
        """
        with self.changing(lease) as change:
            _end_attempt(change, cluster, job, ended, started_at)
            row = change.tx.execute(_one(cluster, job)).mappings().one()
            if row["attempt"] == ended.attempt and row["state"] != "ended":
                going_on = {"attempt": attempt, "started": False}
                reason = f"{ended.cause}: {ended.why}"
                _update(change, cluster, job, going_on, f"job {job} goes on with attempt {attempt}", reason)

    def ended(self, cluster: ClusterRecord, job: int) -> tuple[Ended, ...]:
        query = select(attempts).where(attempts.c.cluster_uid == cluster.uid, attempts.c.job_id == job)
        return self._read_all(query.order_by(attempts.c.attempt), ended_from_row)

    def conclude(self, cluster: ClusterRecord, job: int, outcome: Outcome, *, lease: Lease | None = None) -> None:
        """Set the outcome, once: a job that is ended keeps the one it has."""
        with self.changing(lease) as change:
            if change.tx.execute(_one(cluster, job)).mappings().one()["state"] != "ended":
                _conclude(change, cluster, job, outcome)


def _conclude(change: Change, cluster: ClusterRecord, job: int, outcome: Outcome) -> None:
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


def _one(cluster: ClusterRecord, number: int) -> Any:
    return select(jobs).where(jobs.c.cluster_uid == cluster.uid, jobs.c.id == number)


def _living() -> Any:
    return select(clusters).where(clusters.c.gone.is_(None))


def _highest(change: Change, column: Any, owner: Any, cluster: ClusterRecord) -> int:
    return int(change.tx.execute(select(func.max(column)).where(owner == cluster.uid)).scalar() or 0)


def _end_attempt(change: Change, cluster: ClusterRecord, job: int, ended: Ended, started_at: float | None) -> None:
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
    if change.insert(attempts, key | values | facts, Why(cluster.name, "attempt", what, reason)):
        return
    found = change.tx.execute(select(attempts).filter_by(**key)).mappings().one()
    learned = {column: value for column, value in facts.items() if found[column] is None and value is not None}
    if learned:
        what = f"job {job}: more is known of attempt {ended.attempt}"
        change.update(attempts, key, learned, Why(cluster.name, "attempt", what, reason))


def _started_at(change: Change, cluster: ClusterRecord, job: int) -> float | None:
    """When the newest attempt of the job was started, as its event says."""
    mine = (events.c.cluster == cluster.name) & (
        events.c.subject == subject("jobs", {"cluster_uid": cluster.uid, "id": job})
    )
    query = select(events.c.at).where(mine, events.c.what == _starting(job)).order_by(events.c.seq.desc()).limit(1)
    return change.tx.execute(query).scalar()


def _starting(job: int) -> str:
    return f"job {job} is being started"


def _update(
    change: Change, cluster: ClusterRecord, job: int, values: dict[str, Any], what: str, cause: str = ""
) -> None:
    change.update(jobs, {"cluster_uid": cluster.uid, "id": job}, values, Why(cluster.name, "job", what, cause))
