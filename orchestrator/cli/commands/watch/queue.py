"""`orch queue`: jobs in the order in which they run, and pipelines with their stages."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.formatting import format_duration, format_utc
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.computer import name_engine
from orchestrator.store.audited import format_subject
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord

_NO_ENGINE = "none: no unattended engine is running (why: orch events; then: orch serve --engine-only)"
_REQUESTED_STATE = {"stopped": "stopped (orch start)", "down": "taken down"}


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch queue", "running and queued jobs, on all clusters"),
        ("orch launch next.yaml -c mine --detach", "queue a job behind the running one on 'mine'"),
        ("orch cancel mine 3", "take job 3 out of the queue"),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@scope_options("--all-projects")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs and pipelines that have ended.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def queue(cluster: str | None, all_projects: bool, owner: str, everything: bool, output: str) -> None:
    """Show jobs, which run one after the other on each cluster, and the current stage of pipelines."""
    with open_store_reader() as store:
        scope = make_scope(store, owner, all_projects=all_projects)
        shown = (record for record in store.clusters() if scope.includes(record.project, record.owner))
        records = [find_cluster(store, cluster)] if cluster else list(shown)
        jobs = [(record, job) for record in records for job in store.jobs(record) if everything or job.state != "ended"]
        watched = {(record.uid, job.id): _describe_driver(store, record, job) for record, job in jobs}
        every = [] if cluster else [one for one in store.pipelines() if scope.includes(one.project, one.owner)]
        pipelines = [one for one in every if everything or one.state == "running"]
        actors = store.last_actors("subject") if output == "json" else {}
    if output == "json":
        write_stdout(json.dumps(_as_json(jobs, watched, pipelines, actors), indent=2))
        return
    if not jobs and not pipelines:
        write_stderr("no job is running or queued" + ("" if everything else "; orch queue --all shows ended jobs"))
    if jobs:
        project = ["PROJECT"] if all_projects else []
        rows: list[tuple[str, ...]] = [("CLUSTER", *project, "JOB", "KIND", "STATE", "RUN", "AGE", "DRIVEN BY")]
        rows += [_row(record, job, watched[record.uid, job.id], with_project=all_projects) for record, job in jobs]
        write_stdout(*draw_table(rows, sys.stdout, optional=("RUN",)))
    if pipelines:
        stages = [("PIPELINE", "STAGE", "STATE", "RESULT"), *map(_pipeline_row, pipelines)]
        write_stdout(*draw_table(stages, sys.stdout))


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


def _engine(store: Reader) -> str:
    """Return whether an unattended engine drives it; engines hold a lease."""
    return "an unattended engine, shortly" if store.lease_holder(f"engine:{name_engine(os.environ)}") else _NO_ENGINE


def _row(record: ClusterRecord, job: JobRecord, watched: str, *, with_project: bool) -> tuple[str, ...]:
    state = job.state + (f", attempt {job.attempt}" if job.attempt > 1 else "")
    if job.state == "ended":
        state = f"exit {job.status}"
    age = format_duration((job.ended or time.time()) - job.created)
    project = [record.project] if with_project else []
    return (record.name, *project, str(job.id), job.kind, state, job.run_id, age, watched)


def _pipeline_row(one: PipelineRecord) -> tuple[str, ...]:
    return (one.name, f"{one.stage + 1} of {len(one.tasks)}", one.state, one.what)


def _as_json(
    jobs: list[tuple[ClusterRecord, JobRecord]],
    watched: dict[tuple[str, int], str],
    pipelines: list[PipelineRecord],
    actors: Mapping[str, str],
) -> dict[str, object]:
    """Return jobs and pipelines as in data/queue.schema.json."""
    return {
        "version": 1,
        "kind": "queue",
        "jobs": [
            {
                "cluster": record.name,
                "project": record.project,
                "owner": record.owner or None,
                "actor": actors.get(format_subject("jobs", {"cluster_uid": record.uid, "id": job.id})),
                "id": job.id,
                "kind": job.kind,
                "state": job.state,
                "attempt": job.attempt,
                "run_id": job.run_id,
                "status": job.status,
                "created": format_utc(job.created),
                "driven_by": watched[record.uid, job.id] or None,
            }
            for record, job in jobs
        ],
        "pipelines": [
            {
                "id": one.uid,
                "name": one.name,
                "project": one.project,
                "owner": one.owner or None,
                "actor": actors.get(format_subject("pipelines", {"uid": one.uid})),
                "stage": one.stage + 1,
                "stages": len(one.tasks),
                "state": one.state,
                "status": one.status,
                "what": one.what or None,
            }
            for one in pipelines
        ],
    }
