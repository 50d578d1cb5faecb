"""Pipelines: several tasks one after another, from a file with several documents. Each stage is a separate launch.

The record says which stage runs; a stage's job says how it ended. Interrupted anywhere, the same command, `orch watch`
or an unattended engine resumes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.engine.loop.drive import Detached, drive_cluster
from orchestrator.engine.loop.queue import ENGINE
from orchestrator.engine.loop.stage_end import find_stage_job, make_stage_step, record_stage_end
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.preparation.trees import read_trees
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.shared_trees import fetch_trees, share_tree
from orchestrator.engine.unattended.handover import prepare_for_engine
from orchestrator.engine.unattended.pipeline_spec import PipelineSpec, prepare_stage, read_settings
from orchestrator.engine.unattended.pipeline_start import PipelineStart
from orchestrator.engine.unattended.pipeline_stop import delete_stage_cluster, finish_stop, stop_pipeline
from orchestrator.engine.unattended.secrets import missing_secret_error, secrets_fingerprint
from orchestrator.errors import ConflictError, UserError
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.paths import Paths, load_paths
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.store.leases import Lease
from orchestrator.store.records import JobRecord, PipelineRecord
from orchestrator.store.store import Store
from orchestrator.task.model import Task


def run_pipeline(
    spec: PipelineSpec, narrator: Narrator, services: Services | None = None, start: PipelineStart | None = None
) -> CommandResult:
    """Run the pipeline to its end, or continue it. The status is that of the stage that ended it.

    Args:
        spec: The pipeline.
        narrator: Receives the progress.
        services: The real ones by default.
        start: Where it begins; None for the first stage of a new one.

    Raises:
        Detached: Ctrl-C while a stage's program runs, or waits for machines.
        OrchError: A stage was not begun, or one of the same name cannot be ended.
    """
    where = load_paths()
    services = services or real_services(where)
    record = _begin(where, services, spec, start or PipelineStart(), narrator, {})
    if isinstance(record, CommandResult):
        return record
    return _drive(where, services, record, narrator, {task.to_compared(): task for task in spec.tasks})


def hand_over_pipeline(
    spec: PipelineSpec, narrator: Narrator, start: PipelineStart | None = None
) -> PipelineRecord | CommandResult:
    """Record the pipeline for an unattended engine, with copies of the files that it sends.

    Returns:
        Its record; the result where an earlier one of its name could not be ended.
    """
    where = load_paths()
    services = real_services(where)
    kept: list[dict[str, str]] = []
    with open_store(where, services) as store:
        for task in spec.tasks:
            sent, trees = read_trees(task)
            bucket = task.checkpoint.bucket.rstrip("/")
            for tree in trees:
                share_tree(store, where, tree, bucket)
            kept.append({one.label: one.digest for one in sent})
        traces = [secrets_fingerprint(spec.uid, {one.name: one.value for one in task.secrets}) for task in spec.tasks]
    more = {"watch": ENGINE, "trees": kept, "secrets": traces}
    return _begin(where, services, spec, start or PipelineStart(), narrator, more)


def is_unattended(record: PipelineRecord) -> bool:
    """Return whether the pipeline was handed to unattended engines."""
    return record.watch == ENGINE


def attend_pipeline(where: Paths, services: Services, record: PipelineRecord, narrator: Narrator) -> bool:
    """Run it as an unattended engine; return whether it is over, or another process runs it."""
    return _drive(where, services, record, narrator, {}).status != Exit.CONFLICT


def _begin(
    where: Paths,
    services: Services,
    spec: PipelineSpec,
    start: PipelineStart,
    narrator: Narrator,
    more: Mapping[str, Any],
) -> PipelineRecord | CommandResult:
    """Return the pipeline that runs: the one that continues, or a new one after those that it replaces have ended.

    Args:
        where: The folders of this installation.
        services: The external services.
        spec: The pipeline.
        start: Where it begins.
        narrator: Receives the progress.
        more: Further settings of an unattended one.
    """
    with open_store(where, services) as store:
        for earlier in start.replaced:
            ending = stop_pipeline(store, services, earlier, narrator, "cancel")
            if ending.status:
                return ending
            narrator.note(ending.step.message if isinstance(ending.step, Done) else ending.step.what)
        running = start.continued
        if running is not None and not _has_failed(store, running):
            if more and not is_unattended(running):
                store.set_launch_request(running.uid, running.add_settings(more))
            return store.pipeline(running.uid)
    if running is not None:  # killed between the end of its stage and its own
        ending = _drive(where, services, running, narrator, {})
        if ending.status == Exit.CONFLICT:
            return ending
    with open_store(where, services) as store:
        return _open(store, spec, start.stage, more)


def _has_failed(store: Store, record: PipelineRecord) -> bool:
    job = find_stage_job(store, record)
    return job is not None and job.state == "ended" and job.status != Exit.OK


def _open(store: Store, spec: PipelineSpec, stage: int, more: Mapping[str, Any]) -> PipelineRecord:
    count = store.count_pipelines(spec.uid)
    settings = {"cluster": spec.cluster, "down": spec.down, "accept_host_keys": spec.accept_host_keys, **more}
    settings |= {"project": store.project, "owner": store.user}
    tasks = tuple(task.to_json() for task in spec.tasks)
    return store.open_pipeline(spec.name, tasks, json.dumps(settings), uid=f"{spec.uid}-{count + 1}", stage=stage)


def _drive(
    where: Paths, services: Services, record: PipelineRecord, narrator: Narrator, tasks: Mapping[str, Task]
) -> CommandResult:
    """Run the stages; `tasks` holds tasks with their secrets by their compared JSON, where the caller has them."""
    with (
        open_store(where, services, project=record.project) as store,
        LeaseKeeper(store, record.uid, "pipeline", narrator, kind="pipeline") as keeper,
    ):
        if not keeper.try_hold():
            return _refuse_second_driver(record)
        while True:
            record = store.pipeline(record.uid)
            if record.state != "running":
                return _ended(store, record)
            if record.requested_end:
                ending = finish_stop(store, services, record, narrator, force=True)
            else:
                ending = _run_stage(store, services, record, narrator, tasks, keeper.lease)
            if ending is not None:
                return ending


def _run_stage(
    store: Store,
    services: Services,
    record: PipelineRecord,
    narrator: Narrator,
    tasks: Mapping[str, Task],
    lease: Lease,
) -> CommandResult | None:
    """Run the current stage to its end and record that; return the result where it is not over."""
    job = find_stage_job(store, record)
    if job is None or job.state != "ended":
        ready = _prepare_next(record, job, tasks)
        narrator.note(f"{record.describe_stage()}: cluster '{ready.cluster}'")
        try:
            drive_cluster(ready, narrator, services=services)
        except Detached as left:
            raise _detach(store, record, left, lease) from None
        except ConflictError:
            if store.pipeline(record.uid).may_continue:
                raise
        job = find_stage_job(store, record)
    if not store.pipeline(record.uid).may_continue:
        return None
    if job is None or job.state != "ended":
        again = NextStep(f"orch watch {record.name}", "or the same command again resumes it")
        what = f"{record.describe_stage()} of '{record.name}' is not over"
        return CommandResult(step=GiveUp(code="failure", status=Exit.FAILURE, what=what, next_step=again))
    ending = delete_stage_cluster(store, services, record, job, narrator)
    if ending is None:
        record_stage_end(store, record, job, lease)
    return ending


def _detach(store: Store, record: PipelineRecord, left: Detached, lease: Lease) -> Detached:
    """Return the message after Ctrl-C; a stage whose request for machines was cancelled ends the pipeline."""
    job = find_stage_job(store, record)
    if job is None or job.state != "ended":
        again = f"orch watch {record.name}   to watch again, and the stages after it (--detach: without a terminal)"
        return Detached(left.what, left.why, f"{again}\norch cancel {record.name}   to end it")
    record_stage_end(store, record, job, lease)
    return Detached(left.what, left.why, f"the same launch resumes at {record.describe_stage()}")


def _refuse_second_driver(record: PipelineRecord) -> CommandResult:
    message = f"pipeline '{record.name}' is being driven by another orch"
    step = NextStep(f"orch logs -f {record.cluster}", "follows its stage; the state: orch queue")
    return CommandResult(step=GiveUp(code="conflict", status=Exit.CONFLICT, what=message, next_step=step))


def _ended(store: Store, record: PipelineRecord) -> CommandResult:
    message = f"pipeline '{record.name}': {record.what}"
    if record.status == Exit.OK:
        return CommandResult(step=Done(message))
    job = find_stage_job(store, record)
    return CommandResult(
        step=GiveUp(
            code=job.code if job is not None and job.code else "program-failed",
            status=record.status or Exit.FAILURE,
            what=message,
            why=job.why if job is not None else "",
            next_step=make_stage_step(record, job),
        )
    )


def _prepare_next(record: PipelineRecord, job: JobRecord | None, tasks: Mapping[str, Task]) -> PreparedCommand:
    """Prepare the launch of the current stage, or the continuation of its job."""
    settings, index = read_settings(record), record.stage
    accept = settings["accept_host_keys"]
    if job is not None:
        ready = commands.prepare_continuation(record.cluster, job, project=record.project)
        return replace(ready, continued_uid=job.cluster_uid, accept_host_keys=accept)
    spec = PipelineSpec.from_record(record)
    spec = replace(spec, tasks=tuple(tasks.get(task.to_compared()) or task for task in spec.tasks))
    kept = settings.get("trees", [{}] * len(record.tasks))[index]
    ready = prepare_stage(spec, index, fetch_trees(kept, record.project), record.project)
    if ready.job is None:
        return ready
    ready = prepare_for_engine(ready, _ignore) if is_unattended(record) else ready
    assert ready.job is not None  # noqa: S101  # a launch has one
    # The pipeline drives it, not the queue: it has no watch lease.
    own = replace(ready.job, pipeline=record.uid, stage=index, watch="")
    return replace(ready, job=own, accept_host_keys=accept)


def _ignore(_problem: str) -> None:
    """Report nothing: the files of a stage were shared when the pipeline was handed over."""


def missing_pipeline_secret(record: PipelineRecord, environ: Mapping[str, str]) -> UserError | None:
    """Return why this process cannot run the present stage (a missing secret), or None."""
    traces: list[str] = read_settings(record).get("secrets", [""] * len(record.tasks))
    return missing_secret_error(
        record.tasks[record.stage], record.uid.rpartition("-")[0], traces[record.stage], environ
    )
