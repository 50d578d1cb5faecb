"""`orch runs`: every run on record, also after its cluster was taken down."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.formatting import format_duration, format_local_time, format_utc
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.errors import NotFoundError
from orchestrator.plan.observed import Intent
from orchestrator.store.audited import format_subject
from orchestrator.store.lookup import suggest_name
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run: its launch and every resume of it.

    Attributes:
        cluster: The cluster of the newest job.
        project: The project of that cluster.
        owner: The user who opened the first job, "" when that is not on record.
        actor: Who did the last change of its newest job, as user@computer:pid; "" when that is not on record.
        jobs: Oldest first.
        seconds: Time from the opening to the end of its jobs, summed.
        dollars: List price of the machines during its jobs; None when a price is not known.
    """

    run_id: str
    cluster: str
    project: str
    owner: str
    actor: str
    jobs: tuple[JobRecord, ...]
    seconds: float
    dollars: float | None

    @property
    def last(self) -> JobRecord:
        """The newest job."""
        return self.jobs[-1]

    @property
    def result(self) -> str:
        """`running`, `succeeded`, or the exit status with the reason."""
        job = self.last
        if job.state != "ended":
            return job.state
        return "succeeded" if job.status == 0 else f"exit {job.status}: {job.what}"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch runs", "the last 20 runs, newest first"),
        ("orch runs RUN_ID", "one run in full: jobs, bucket, how to resume it"),
        ("orch runs --cluster mine --limit 100 -o json", ""),
    ],
)
@click.argument("run_id", required=False)
@click.option("-c", "--cluster", type=CLUSTER, help="Only runs on clusters of this name.")
@scope_options("--all")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many of the newest.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def runs(run_id: str | None, cluster: str | None, all_projects: bool, owner: str, limit: int, output: str) -> None:
    """Show runs with owner, duration, cost and result, also after their machines were deleted.

    The cost is the list price of the machines while the jobs of the run were open; disks and buckets are not in it.
    """
    with open_store_reader() as store:
        scope = make_scope(store, owner, all_projects=all_projects)
        found = [run for run in summarize_runs(store, time.time()) if scope.includes(run.project, run.owner)]
        clusters = {record.name for record in store.all_clusters() if scope.includes(record.project, scope.owner)}
    found = _select_runs(found, clusters, run_id, cluster)
    if output == "json":
        document = {"version": 1, "kind": "runs", "runs": [_as_json(run) for run in found[:limit]]}
        write_stdout(json.dumps(document, indent=2))
    elif run_id is not None:
        write_stdout(*_detail_lines(found[0]))
    elif found:
        head = ("RUN", "CLUSTER", *(["PROJECT"] if all_projects else []), "OWNER", "STARTED", "TOOK", "COST", "RESULT")
        rows = [head, *(_row(run, with_project=all_projects) for run in found[:limit])]
        write_stdout(*draw_table(rows, sys.stdout, optional=("CLUSTER", "OWNER", "TOOK")))
    else:
        whose = f" of cluster '{cluster}'" if cluster is not None else ""
        write_stderr(f"no run{whose} is on record; orch launch --help shows how to begin")


def _select_runs(
    found: list[RunSummary], clusters: set[str], run_id: str | None, cluster: str | None
) -> list[RunSummary]:
    """Return the runs of that id, on clusters of that name.

    Raises:
        NotFoundError: No such run or cluster is on record; the nearest names are suggested.
    """
    everything = "orch runs   (lists the runs on record)"
    if cluster is not None and cluster not in clusters:
        raise NotFoundError(f"no cluster '{cluster}' on record", suggest_name(cluster, clusters), everything)
    chosen = [run for run in found if run_id in (None, run.run_id) and cluster in (None, run.cluster)]
    if run_id is None or chosen:
        return chosen
    if run_id in clusters:
        raise NotFoundError(f"no run '{run_id}' on record", f"'{run_id}' is a cluster", f"orch runs -c {run_id}")
    near = suggest_name(run_id, {run.run_id for run in found} | clusters)
    raise NotFoundError(f"no run '{run_id}' on record", near, everything)


def summarize_runs(store: Reader, now: float) -> list[RunSummary]:
    """Return all runs on record, the one with the newest job first."""
    actors, changers = store.job_actors(), store.last_actors("subject")
    records: dict[str, ClusterRecord] = {}
    jobs: dict[str, list[JobRecord]] = {}
    intents: dict[str, tuple[Intent, ...]] = {}
    for record in store.all_clusters():
        records[record.uid], intents[record.uid] = record, store.intents(record)
        for job in store.jobs(record):
            if job.kind != "exec":
                jobs.setdefault(job.run_id, []).append(job)
    found: list[RunSummary] = []
    for run_id, opened in jobs.items():
        ordered = tuple(sorted(opened, key=lambda job: job.created))
        first, last = ordered[0], ordered[-1]
        costs = [_dollars(job, intents[job.cluster_uid], now) for job in ordered]
        summary = RunSummary(
            run_id=run_id,
            cluster=records[last.cluster_uid].name,
            project=records[last.cluster_uid].project,
            owner=actors.get(_subject(first), "").partition("@")[0],
            actor=changers.get(_subject(last), ""),
            jobs=ordered,
            seconds=sum((job.ended or now) - job.created for job in ordered),
            dollars=None if None in costs else sum(cost for cost in costs if cost is not None),
        )
        found.append(summary)
    return sorted(found, key=lambda run: run.last.created, reverse=True)


def _subject(job: JobRecord) -> str:
    return format_subject("jobs", {"cluster_uid": job.cluster_uid, "id": job.id})


def _dollars(job: JobRecord, intents: tuple[Intent, ...], now: float) -> float | None:
    """Return the list price of the slices that were billed while the job was open; None when one is not known."""
    total = 0.0
    for intent in intents:
        if intent.billed_from is None:
            continue
        begin, end = max(intent.billed_from, job.created), min(intent.billed_until or now, job.ended or now)
        if end <= begin:
            continue
        price = intent.candidate.price_per_hour
        if price is None:
            return None
        total += price * (end - begin) / 3600
    return total


def _cost(run: RunSummary) -> str:
    if run.dollars is None:
        return "not known"
    return f"${run.dollars:,.2f}" if run.dollars else "free"


def _row(run: RunSummary, *, with_project: bool) -> tuple[str, ...]:
    whose = (*([run.project] if with_project else []), run.owner or "-", format_local_time(run.jobs[0].created)[5:16])
    return (run.run_id, run.cluster, *whose, format_duration(run.seconds), _cost(run), run.result)


def _detail_lines(run: RunSummary) -> list[str]:
    facts = [
        ("run", run.run_id),
        ("cluster", run.cluster),
        ("owner", run.owner or "not on record"),
        ("started", format_local_time(run.jobs[0].created)),
        ("took", format_duration(run.seconds)),
        ("cost", f"{_cost(run)} by list price, without disks and buckets"),
        ("result", run.result),
        ("bucket", f"{run.last.bucket}/{run.run_id}/" if run.last.bucket else "none"),
    ]
    if run.last.why:
        facts.append(("reason", run.last.why))
    if run.last.bucket:
        facts.append(("resume", f"orch resume {run.run_id} --bucket {run.last.bucket}"))
    rows = [("JOB", "KIND", "STATE", "ATTEMPTS", "STARTED", "RESULT")]
    rows += [
        (
            str(job.id),
            job.kind,
            job.state,
            str(job.attempt),
            format_local_time(job.created),
            f"exit {job.status}" if job.status is not None else "",
        )
        for job in run.jobs
    ]
    return [*draw_list(facts, sys.stdout), "", *draw_table(rows, sys.stdout)]


def _as_json(run: RunSummary) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "cluster": run.cluster,
        "project": run.project,
        "owner": run.owner or None,
        "actor": run.actor or None,
        "created": format_utc(run.jobs[0].created),
        "ended": format_utc(run.last.ended) if run.last.ended is not None else None,
        "seconds": round(run.seconds, 3),
        "dollars": round(run.dollars, 4) if run.dollars is not None else None,
        "state": run.last.state,
        "status": run.last.status,
        "result": run.result,
        "bucket": run.last.bucket or None,
        "jobs": [{"id": job.id, "kind": job.kind, "attempts": job.attempt, "status": job.status} for job in run.jobs],
    }
