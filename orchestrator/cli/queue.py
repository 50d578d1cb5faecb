"""`orch queue`: jobs in the order in which they run, and pipelines with their stages."""

from __future__ import annotations

import json
import platform
import time

import click

from orchestrator.cli.clusters import CLUSTER, find, reader
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import columns, duration, iso
from orchestrator.cli.terminal import put, say
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord

_NO_ENGINE = "an unattended engine; none is at it now (why: orch events; then: orch serve --engine-only)"
_WANTED = {"stopped": "stopped (orch start)", "down": "taken down"}


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch queue", "what runs and what waits, on all clusters"),
        ("orch launch next.yaml -c mine --detach", "put a job behind the one that runs on 'mine'"),
        ("orch cancel mine 3", "take job 3 out of the queue"),
    ],
)
@click.argument("cluster", type=CLUSTER, required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs and pipelines that are over.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def queue(cluster: str | None, everything: bool, output: str) -> None:
    """Jobs of a cluster run one after the other, in this order. Pipelines show the stage that is at work."""
    with reader() as store:
        records = [find(store, cluster)] if cluster else list(store.clusters())
        jobs = [(record, job) for record in records for job in store.jobs(record) if everything or job.state != "ended"]
        watched = {(record.uid, job.id): _watched(store, record, job) for record, job in jobs}
        pipelines = [] if cluster else [one for one in store.pipelines() if everything or one.state == "running"]
    if output == "json":
        put(json.dumps(_as_json(jobs, watched, pipelines), indent=2))
        return
    if not jobs and not pipelines:
        say("nothing runs and nothing waits" + ("" if everything else "; orch queue --all shows what is over"))
    if jobs:
        rows = [("CLUSTER", "JOB", "KIND", "STATE", "RUN", "AGE", "DRIVEN BY")]
        put(*columns([*rows, *(_row(record, job, watched[record.uid, job.id]) for record, job in jobs)]))
    if pipelines:
        put(*columns([("PIPELINE", "STAGE", "STATE", "RESULT"), *map(_pipeline_row, pipelines)]))


def _watched(store: Reader, record: ClusterRecord, job: JobRecord) -> str:
    """Who drives it now, in words."""
    holder = store.lease_holder(f"watch:{record.uid}/{job.id}")
    if holder or job.state == "ended":
        return holder
    if record.wanted != "up":
        return f"nobody: the cluster is {_WANTED.get(record.wanted, record.wanted)}"
    if job.state == "queued":
        earlier = [one for one in store.jobs(record) if one.id < job.id and one.kind != "exec"]
        ahead = [one.id for one in earlier if one.state != "ended"]
        return f"waits for job {ahead[-1]}" if ahead else _engine(store)
    if job.watch:
        return _engine(store)
    return f"nobody (orch watch {record.name})"


def _engine(store: Reader) -> str:
    """Engines hold a lease of their computer's name."""
    return "an unattended engine, in a moment" if store.lease_holder(f"engine:{platform.node()}") else _NO_ENGINE


def _row(record: ClusterRecord, job: JobRecord, watched: str) -> tuple[str, ...]:
    state = job.state + (f", attempt {job.attempt}" if job.attempt > 1 else "")
    if job.state == "ended":
        state = f"exit {job.status}"
    age = duration((job.ended or time.time()) - job.created)
    return (record.name, str(job.id), job.kind, state, job.run_id, age, watched)


def _pipeline_row(one: PipelineRecord) -> tuple[str, ...]:
    return (one.name, f"{one.stage + 1} of {len(one.tasks)}", one.state, one.what)


def _as_json(
    jobs: list[tuple[ClusterRecord, JobRecord]],
    watched: dict[tuple[str, int], str],
    pipelines: list[PipelineRecord],
) -> dict[str, object]:
    """See data/queue.schema.json."""
    return {
        "version": 1,
        "kind": "queue",
        "jobs": [
            {
                "cluster": record.name,
                "id": job.id,
                "kind": job.kind,
                "state": job.state,
                "attempt": job.attempt,
                "run_id": job.run_id,
                "status": job.status,
                "created": iso(job.created),
                "driven_by": watched[record.uid, job.id] or None,
            }
            for record, job in jobs
        ],
        "pipelines": [
            {
                "id": one.uid,
                "name": one.name,
                "stage": one.stage + 1,
                "stages": len(one.tasks),
                "state": one.state,
                "status": one.status,
                "what": one.what or None,
            }
            for one in pipelines
        ],
    }
