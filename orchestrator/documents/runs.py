"""Summarize runs, also after their machines were deleted: a launch and every resume of it, with cost and result."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from orchestrator.documents.output_forms import OutputProgress, output_as_json
from orchestrator.documents.output_progress import add_output
from orchestrator.documents.queries import ChosenScope, RunsQuery
from orchestrator.documents.spending import BilledTime, Spending, list_billed_times
from orchestrator.documents.stages import read_pipelines, stage_as_json
from orchestrator.errors import NotFoundError
from orchestrator.formatting import format_utc
from orchestrator.plan.observed import Intent
from orchestrator.store.audited import format_subject
from orchestrator.store.job_spans import list_job_spans
from orchestrator.store.lookup import suggest_name, suggest_run
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run: its launch and every resume of it.

    Attributes:
        cluster: The cluster of the newest job.
        actor: Who did the last change of its newest job, as user@computer:pid; "" when that is not on record.
        jobs: Oldest first.
        seconds: Time from the opening to the end of its jobs, summed.
        spending: The machines that were billed during its jobs.
        now: When this was read, in epoch seconds.
        output: What the program's output says; None where it says nothing, or was not read (output_progress.py).
        pipeline: The pipeline of which it is a stage; None for none.
    """

    run_id: str
    cluster: ClusterRecord
    actor: str
    jobs: tuple[JobRecord, ...]
    seconds: float
    spending: Spending
    now: float
    output: OutputProgress | None = None
    pipeline: PipelineRecord | None = None

    @property
    def stage_job(self) -> JobRecord:
        """The job that a pipeline opened: a resume by hand is none of its stages."""
        return next((job for job in reversed(self.jobs) if job.pipeline), self.last)

    @property
    def last(self) -> JobRecord:
        """The newest job."""
        return self.jobs[-1]

    @property
    def owner(self) -> str:
        """The owner of the cluster, who may be another than the login that wrote the record; "" when not on record."""
        return self.cluster.owner

    @property
    def git(self) -> Mapping[str, str]:
        """From which commit its newest job's workdir was, as the section `git` of its task; {} when not known."""
        task = cast("dict[str, Any]", json.loads(self.last.task)) if '"git"' in self.last.task else {}
        return cast("dict[str, str]", task.get("git", {}))

    @property
    def project(self) -> str:
        """The project of the cluster."""
        return self.cluster.project

    @property
    def dollars(self) -> float | None:
        """List price of the machines during its jobs; None when a price is not known."""
        return self.spending.dollars_until(self.now) if self.spending.known else None

    @property
    def result(self) -> str:
        """`running`, `succeeded`, or the exit status with the reason."""
        job = self.last
        if job.state != "ended":
            return job.state
        return "succeeded" if job.status == 0 else f"exit {job.status}: {job.what}"


def read_runs(store: Reader, now: float, query: RunsQuery) -> dict[str, Any]:
    """Return the document of data/runs.schema.json for the newest runs that a query chooses. Raises as `find_runs`."""
    return runs_as_json(add_output(find_runs(store, now, query)), now)


def find_runs(store: Reader, now: float, query: RunsQuery) -> list[RunSummary]:
    """Return the newest runs that a query chooses, the one with the newest job first.

    Raises:
        NotFoundError: No such run or cluster is on record; the nearest names are suggested.
        UserError: Nothing of the member is on record.
    """
    scope = query.scope.resolve(store)
    if query.run_id:
        found = [
            run
            for run in summarize_runs(store, now, [query.run_id])
            if scope.includes(run.project, run.owner) and query.cluster in ("", run.cluster.name)
        ]
    else:
        newest = store.newest_runs(
            limit=query.limit, before=query.before, project=scope.project, owner=scope.owner, cluster=query.cluster
        )
        found = summarize_runs(store, now, newest)
    if not found and query.before is None and (query.run_id or query.cluster):
        _refuse_unknown(store, query, scope)
    return found


def _refuse_unknown(store: Reader, query: RunsQuery, scope: ChosenScope) -> None:
    """Raise NotFoundError where the run or the cluster of a query is not on record."""
    clusters = store.cluster_names(scope.project, scope.owner)
    everything = "orch runs   (lists the runs on record)"
    if query.cluster and query.cluster not in clusters:
        raise NotFoundError(
            f"no cluster '{query.cluster}' on record", suggest_name(query.cluster, clusters), everything
        )
    if query.run_id in clusters:
        why, step = f"'{query.run_id}' is a cluster", f"orch runs -c {query.run_id}"
        raise NotFoundError(f"no run '{query.run_id}' on record", why, step)
    if query.run_id:
        near = suggest_run(store, query.run_id, project=scope.project, owner=scope.owner)
        raise NotFoundError(f"no run '{query.run_id}' on record", near, everything)


def summarize_runs(store: Reader, now: float, run_ids: Collection[str]) -> list[RunSummary]:
    """Return the runs of these ids that are on record, the one with the newest job first."""
    chosen = frozenset(run_ids)
    of_clusters = store.jobs_during_runs(chosen)
    uids = of_clusters.keys()
    jobs: dict[str, list[JobRecord]] = {}
    for job in sorted(chain.from_iterable(of_clusters.values()), key=lambda job: job.created):
        if job.run_id in chosen:
            jobs.setdefault(job.run_id, []).append(job)
    clusters, intents = store.clusters_by_uid(uids), store.intents_by_uid(uids)
    spans = _list_spans(of_clusters, now)
    changers = store.last_actors("subject", (_subject(own[-1]) for own in jobs.values()))
    pipelines = read_pipelines(store, chain.from_iterable(jobs.values()))
    found = [
        RunSummary(
            run_id=run_id,
            cluster=clusters[own[-1].cluster_uid],
            actor=changers.get(_subject(own[-1]), ""),
            jobs=tuple(own),
            seconds=sum(max((job.ended or now) - job.created, 0.0) for job in own),
            spending=Spending(billed=_list_billed(spans.get(run_id, {}), intents, now)),
            now=now,
            pipeline=next((pipelines[job.pipeline] for job in reversed(own) if job.pipeline in pipelines), None),
        )
        for run_id, own in jobs.items()
    ]
    return sorted(found, key=lambda run: run.last.created, reverse=True)


def _subject(job: JobRecord) -> str:
    return format_subject("jobs", {"cluster_uid": job.cluster_uid, "id": job.id})


_Spans = dict[str, list[tuple[float, float]]]  # by the uid of the cluster


def _list_spans(jobs: Mapping[str, Sequence[JobRecord]], now: float) -> dict[str, _Spans]:
    """Return when each run had which cluster's machines."""
    found: dict[str, _Spans] = {}
    for uid, own in jobs.items():
        for job, begin, end in list_job_spans(own, now):
            found.setdefault(job.run_id, {}).setdefault(uid, []).append((begin, end))
    return found


def _list_billed(spans: _Spans, intents: Mapping[str, Sequence[Intent]], now: float) -> tuple[BilledTime, ...]:
    return tuple(one for uid, times in spans.items() for one in list_billed_times(intents.get(uid, ()), times, now))


def runs_as_json(runs: Sequence[RunSummary], now: float) -> dict[str, Any]:
    """Return runs as in data/runs.schema.json."""
    return {"version": 1, "kind": "runs", "now": format_utc(now), "runs": [run_as_item(run) for run in runs]}


def run_as_item(run: RunSummary) -> dict[str, object]:
    """Return one run as an item of data/runs.schema.json."""
    dollars = run.dollars
    return {
        "run_id": run.run_id,
        "cluster": run.cluster.name,
        "project": run.project,
        "owner": run.owner or None,
        "actor": run.actor or None,
        "created": format_utc(run.jobs[0].created),
        "ended": format_utc(run.last.ended) if run.last.ended is not None else None,
        "seconds": round(run.seconds, 3),
        "dollars": round(dollars, 6) if dollars is not None else None,
        "state": run.last.state,
        "status": run.last.status,
        "result": run.result,
        "why": run.last.why or None,
        "bucket": run.last.bucket or None,
        "commit": run.git.get("commit"),
        "changes": run.git.get("changes"),
        "branch": run.git.get("branch"),
        "from_output": output_as_json(run.output),
        "stage": stage_as_json(run.stage_job, {run.pipeline.uid: run.pipeline} if run.pipeline else {}),
        "jobs": [
            {
                "id": job.id,
                "kind": job.kind,
                "state": job.state,
                "attempts": job.attempt,
                "created": format_utc(job.created),
                "status": job.status,
            }
            for job in run.jobs
        ],
    }
