"""`orch queue`: jobs in the order in which they run, and pipelines with their stages."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER, open_store_reader, read_record_time
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.documents.queue import QueuedJob, list_queue, list_subjects, queue_as_json
from orchestrator.formatting import format_duration
from orchestrator.store.lookup import find_cluster
from orchestrator.store.records import PipelineRecord


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
        listed = list_queue(store, [find_cluster(store, cluster)] if cluster else list(shown), ended=everything)
        every = () if cluster else listed.pipelines
        listed = replace(listed, pipelines=tuple(one for one in every if scope.includes(one.project, one.owner)))
        actors = store.last_actors("subject", list_subjects(listed)) if output == "json" else {}
    if output == "json":
        write_stdout(json.dumps(queue_as_json(listed, actors), indent=2))
        return
    jobs, pipelines = listed.jobs, listed.pipelines
    if not jobs and not pipelines:
        write_stderr("no job is running or queued" + ("" if everything else "; orch queue --all shows ended jobs"))
    if jobs:
        project = ["PROJECT"] if all_projects else []
        rows: list[tuple[str, ...]] = [("CLUSTER", *project, "JOB", "KIND", "STATE", "RUN", "AGE", "DRIVEN BY")]
        rows += [_row(one, with_project=all_projects) for one in jobs]
        write_stdout(*draw_table(rows, sys.stdout, optional=("RUN",)))
    if pipelines:
        stages = [("PIPELINE", "STAGE", "STATE", "RESULT"), *map(_pipeline_row, pipelines)]
        write_stdout(*draw_table(stages, sys.stdout))


def _row(one: QueuedJob, *, with_project: bool) -> tuple[str, ...]:
    job = one.job
    state = job.state + (f", attempt {job.attempt}" if job.attempt > 1 else "")
    if job.state == "ended":
        state = f"exit {job.status}"
    age = format_duration((job.ended or read_record_time()) - job.created)
    project = [one.cluster.project] if with_project else []
    return (one.cluster.name, *project, str(job.id), job.kind, state, job.run_id, age, one.driven_by)


def _pipeline_row(one: PipelineRecord) -> tuple[str, ...]:
    return (one.name, f"{one.stage + 1} of {len(one.tasks)}", one.state, one.what)
