"""The jobs that are not finished, in the order in which they run, and the pipelines with their stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.documents.queries import QueueQuery, choose_clusters
from orchestrator.formatting import format_utc
from orchestrator.store.audited import format_subject
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord

_NO_ENGINE = "none: no unattended engine is running (why: orch events; then: orch serve --engine-only)"
_REQUESTED_STATE = {"stopped": "stopped (orch start)", "down": "taken down"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One job of a cluster.

    Attributes:
        driven_by: The process that drives it, or why none does; "" for an ended one.
    """

    cluster: ClusterRecord
    job: JobRecord
    driven_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPipeline:
    """A pipeline on record.

    Attributes:
        driven_by: The process that drives it, or why none does; "" for an ended one.
    """

    record: PipelineRecord
    driven_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Jobs and pipelines."""

    jobs: tuple[QueuedJob, ...]
    pipelines: tuple[QueuedPipeline, ...] = ()


def read_queue(store: Reader, now: float, query: QueueQuery) -> dict[str, Any]:
    """Return the document of data/queue.schema.json for the jobs and pipelines that a query chooses.

    Raises:
        NotFoundError: There is no cluster of this name; the nearest names are suggested.
    """
    clusters = _choose_clusters(store, query)
    listed = list_queue(store, clusters, ended=query.ended)
    scope = query.scope.resolve(store)
    pipelines = tuple(
        one
        for one in listed.pipelines
        if scope.includes(one.record.project, one.record.owner)
        and query.cluster in ("", one.record.name, one.record.cluster)
    )
    return queue_as_json(store, now, replace(listed, pipelines=pipelines))


def _choose_clusters(store: Reader, query: QueueQuery) -> list[ClusterRecord]:
    """Return the clusters of a query, which names one, or a pipeline by its name: then that of its current stage."""
    named = [one for one in store.pipelines(ended=query.ended) if query.cluster == one.name]
    if not named or store.cluster(query.cluster) is not None:
        return choose_clusters(store, query.scope, query.cluster)
    found = (store.cluster(one.cluster) for one in named if one.project == store.project)
    return [one for one in found if one is not None]


def list_queue(store: Reader, clusters: Collection[ClusterRecord] | None = None, *, ended: bool = False) -> Queue:
    """Return the jobs of these clusters, or of all open ones, and all pipelines.

    Args:
        store: Open.
        clusters: Whose jobs; None for every open cluster.
        ended: Whether those that have ended are listed, too.
    """
    records = store.clusters() if clusters is None else clusters
    jobs = tuple(
        QueuedJob(cluster=record, job=job, driven_by=_describe_driver(store, record, job))
        for record in records
        for job in store.jobs(record)
        if ended or job.state != "ended"
    )
    pipelines = (
        QueuedPipeline(record=one, driven_by=_describe_pipeline_driver(store, one))
        for one in store.pipelines(ended=ended)
    )
    return Queue(jobs=jobs, pipelines=tuple(pipelines))


def _describe_driver(store: Reader, record: ClusterRecord, job: JobRecord) -> str:
    """Return which process drives the job now, or why none does."""
    holder = store.lease_holder(f"watch:{record.uid}/{job.id}")
    if holder or job.state == "ended":
        return holder
    if record.desired_state != "up":
        return f"none: the cluster is {_REQUESTED_STATE.get(record.desired_state, record.desired_state)}"
    if job.state == "queued":
        earlier = [one for one in store.jobs(record) if one.id < job.id and one.kind != "exec"]
        ahead = [one.id for one in earlier if one.state != "ended"]
        if ahead:
            return f"queued behind job {ahead[-1]}"
    if job.watch:
        return _engine(store)
    if job.kind == "exec":
        return f"none (orch logs -f {record.name} {job.id})"
    return f"none (orch watch {record.name})"


def _describe_pipeline_driver(store: Reader, record: PipelineRecord) -> str:
    """Return which process drives the pipeline now, or why none does."""
    if record.state != "running":
        return ""
    if holder := store.lease_holder(f"pipeline:{record.uid}"):
        return holder
    if record.requested_end:
        return f"none (orch {record.requested_end} {record.name})"
    return _engine(store) if record.watch else f"none (orch watch {record.name})"


def _engine(store: Reader) -> str:
    """Return whether an unattended engine drives it; engines hold a lease."""
    return "an unattended engine, shortly" if store.engine_works() else _NO_ENGINE


def _job_subject(one: QueuedJob) -> str:
    return format_subject("jobs", {"cluster_uid": one.job.cluster_uid, "id": one.job.id})


def _pipeline_subject(one: QueuedPipeline) -> str:
    return format_subject("pipelines", {"uid": one.record.uid})


def queue_as_json(store: Reader, now: float, queue: Queue) -> dict[str, Any]:
    """Return jobs and pipelines as in data/queue.schema.json."""
    subjects = [*map(_job_subject, queue.jobs), *map(_pipeline_subject, queue.pipelines)]
    actors = store.last_actors("subject", subjects)
    return {
        "version": 1,
        "kind": "queue",
        "now": format_utc(now),
        "jobs": [
            {
                "cluster": one.cluster.name,
                "project": one.cluster.project,
                "owner": one.cluster.owner or None,
                "actor": actors.get(_job_subject(one)),
                "id": one.job.id,
                "kind": one.job.kind,
                "state": one.job.state,
                "attempt": one.job.attempt,
                "run_id": one.job.run_id,
                "status": one.job.status,
                "created": format_utc(one.job.created),
                "ended": None if one.job.ended is None else format_utc(one.job.ended),
                "driven_by": one.driven_by or None,
            }
            for one in queue.jobs
        ],
        "pipelines": [_pipeline_as_json(one, actors) for one in queue.pipelines],
    }


def _pipeline_as_json(one: QueuedPipeline, actors: Mapping[str, str]) -> dict[str, Any]:
    record = one.record
    return {
        "id": record.uid,
        "name": record.name,
        "project": record.project,
        "owner": record.owner or None,
        "actor": actors.get(_pipeline_subject(one)),
        "stage": record.stage + 1,
        "stages": len(record.tasks),
        "stage_name": record.name_stage(record.stage) or None,
        "cluster": record.cluster,
        "state": record.state,
        "status": record.status,
        "what": record.what or None,
        "driven_by": one.driven_by or None,
    }
