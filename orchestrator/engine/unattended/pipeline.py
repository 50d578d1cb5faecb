"""Pipelines: several tasks one after another, from a file with several documents. Each stage is a separate launch.

The record says which stage runs; a stage's job says how it ended. Interrupted anywhere, the same command or an
unattended engine resumes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.loop.queue import ENGINE
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.preparation.trees import read_trees
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.shared_trees import fetch_trees, share_tree
from orchestrator.engine.unattended.handover import prepare_for_engine
from orchestrator.engine.unattended.secrets import missing_secret_error, secrets_fingerprint
from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.paths import Paths, load_paths
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import JobRecord, PipelineRecord
from orchestrator.store.store import Store
from orchestrator.task.model import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline.

    Attributes:
        name: Its name.
        tasks: In order.
        cluster: All stages run on this one; "" for a cluster per stage, ended after it.
        down: Whether the shared cluster is taken down after the last stage.
        accept_host_keys: See PreparedCommand.
    """

    name: str
    tasks: tuple[Task, ...]
    cluster: str = ""
    down: bool = False
    accept_host_keys: bool = False

    @property
    def uid(self) -> str:
        """An id that is the same for the same command, so that it continues its earlier pipeline."""
        content = json.dumps([self.name, self.cluster, *(task.to_compared() for task in self.tasks)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def prepare_stages(spec: PipelineSpec) -> tuple[PreparedCommand, ...]:
    """Prepare every stage for a preview."""
    return tuple(_stage(spec.name, spec.cluster, spec.down, index, task, len(spec.tasks))
                 for index, task in enumerate(spec.tasks))  # fmt: skip


def run_pipeline(spec: PipelineSpec, narrator: Narrator, services: Services | None = None) -> CommandResult:
    """Run the pipeline to its end, or continue it. The status is that of the stage that ended it."""
    where = load_paths()
    services = services or real_services(where)
    with open_store(where, services) as store:
        record = _open(store, spec, {})
    return _drive(where, services, record, narrator, {task.to_compared(): task for task in spec.tasks})


def hand_over_pipeline(spec: PipelineSpec) -> PipelineRecord:
    """Record the pipeline for an unattended engine, with copies of the files that it sends."""
    where = load_paths()
    kept: list[dict[str, str]] = []
    with open_store(where, real_services(where)) as store:
        for task in spec.tasks:
            sent, trees = read_trees(task)
            bucket = task.checkpoint.bucket.rstrip("/")
            for tree in trees:
                share_tree(store, where, tree, bucket)
            kept.append({one.label: one.digest for one in sent})
        traces = [secrets_fingerprint(spec.uid, {one.name: one.value for one in task.secrets}) for task in spec.tasks]
        return _open(store, spec, {"watch": ENGINE, "trees": kept, "secrets": traces})


def is_unattended(record: PipelineRecord) -> bool:
    """Return whether the pipeline was handed to unattended engines."""
    return bool(_settings(record).get("watch") == ENGINE)


def attend_pipeline(where: Paths, services: Services, record: PipelineRecord, narrator: Narrator) -> bool:
    """Run it as an unattended engine; return whether it is over, or another process runs it."""
    return _drive(where, services, record, narrator, {}).status != Exit.CONFLICT


def _open(store: Store, spec: PipelineSpec, more: dict[str, Any]) -> PipelineRecord:
    named = [one for one in store.unended_pipelines() if one.uid.startswith(spec.uid)]
    living = [one for one in named if one.project == store.project]
    if living:
        if more and not is_unattended(living[-1]):
            store.set_launch_request(living[-1].uid, json.dumps({**_settings(living[-1]), **more}))
        return store.pipeline(living[-1].uid)
    count = store.count_pipelines(spec.uid)
    settings = {"cluster": spec.cluster, "down": spec.down, "accept_host_keys": spec.accept_host_keys, **more}
    settings |= {"project": store.project, "owner": store.user}
    tasks = tuple(task.to_json() for task in spec.tasks)
    return store.open_pipeline(spec.name, tasks, json.dumps(settings), uid=f"{spec.uid}-{count + 1}")


def _drive(
    where: Paths, services: Services, record: PipelineRecord, narrator: Narrator, tasks: Mapping[str, Task]
) -> CommandResult:
    """Run the stages; `tasks` holds tasks with their secrets by their compared JSON, where the caller has them."""
    with (
        open_store(where, services, project=record.project) as store,
        LeaseKeeper(store, record.uid, "pipeline", narrator, kind="pipeline") as keeper,
    ):
        if not keeper.try_hold():
            message = f"pipeline '{record.name}' is being driven by another orch"
            return CommandResult(
                step=GiveUp(code="conflict", status=Exit.CONFLICT, what=message, next_step=NextStep("orch queue"))
            )
        while True:
            record = store.pipeline(record.uid)
            if record.state != "running":
                return _ended(record, _job_of(store, record))
            job = _job_of(store, record)
            if job is None or job.state != "ended":
                ready = _next(store, record, job, tasks)
                ready = replace(ready, accept_host_keys=_settings(record)["accept_host_keys"])
                narrator.note(f"stage {record.stage + 1} of {len(record.tasks)}: cluster '{ready.cluster}'")
                drive_cluster(ready, narrator, services=services)
                job = _job_of(store, record)
            if job is None or job.state != "ended":
                message = f"stage {record.stage + 1} of '{record.name}' is not over"
                return CommandResult(
                    step=GiveUp(
                        code="failure",
                        status=Exit.FAILURE,
                        what=message,
                        next_step=NextStep(words="run the same command again to resume it"),
                    )
                )
            _advance(store, keeper, record, job)


def _advance(store: Store, keeper: LeaseKeeper, record: PipelineRecord, job: JobRecord) -> None:
    """Record the end of a stage."""
    lease, stage = keeper.lease, record.stage + 1
    if job.status != Exit.OK:
        what = f"stage {stage} of {len(record.tasks)}: {job.what}"
        store.end_pipeline(record.uid, "ended", job.status or Exit.FAILURE, what, lease=lease)
    elif stage == len(record.tasks):
        store.end_pipeline(record.uid, "ended", Exit.OK, f"all {stage} stages succeeded", lease=lease)
    else:
        store.advance_pipeline(record.uid, stage, lease=lease)


def _ended(record: PipelineRecord, job: JobRecord | None) -> CommandResult:
    message = f"pipeline '{record.name}': {record.what}"
    if record.status == Exit.OK:
        return CommandResult(step=Done(message))
    return CommandResult(
        step=GiveUp(
            code=job.code if job is not None and job.code else "program-failed",
            status=record.status or Exit.FAILURE,
            what=message,
            why=job.why if job is not None else "",
            next_step=(job.next_step if job is not None else NO_STEP) or NextStep("orch queue --all"),
        )
    )


def _job_of(store: Store, record: PipelineRecord) -> JobRecord | None:
    """Return the present stage's job, on whatever cluster, deleted or not."""
    jobs = [job for job in store.pipeline_jobs(record.uid) if job.stage == record.stage]
    return jobs[-1] if jobs else None


def _next(store: Store, record: PipelineRecord, job: JobRecord | None, tasks: Mapping[str, Task]) -> PreparedCommand:
    settings, index = _settings(record), record.stage
    recorded = Task.from_json(record.tasks[index])
    task = tasks.get(recorded.to_compared()) or commands.add_secrets_from_environment(recorded)
    kept = settings.get("trees", [{}] * len(record.tasks))[index]
    name = _cluster(record.name, settings["cluster"], index)
    if job is not None:
        return replace(commands.prepare_continuation(name, job, project=record.project), continued_uid=job.cluster_uid)
    kept = fetch_trees(kept, record.project)
    ready = _stage(
        record.name, settings["cluster"], settings["down"], index, task, len(record.tasks), kept, record.project
    )
    if ready.job is None:
        return ready
    ready = prepare_for_engine(ready, _ignore) if is_unattended(record) else ready
    assert ready.job is not None  # noqa: S101  # a launch has one
    # The pipeline drives it, not the queue: it has no watch lease.
    return replace(ready, job=replace(ready.job, pipeline=record.uid, stage=index, watch=""))


def _ignore(_problem: str) -> None:
    """Report nothing: the files of a stage were shared when the pipeline was handed over."""


def _stage(
    name: str,
    cluster: str,
    down: bool,
    index: int,
    task: Task,
    count: int,
    kept: Mapping[str, str] | None = None,
    project: str = "",
) -> PreparedCommand:
    """Prepare a stage. Its own cluster is ended after it; a shared one after the last stage, if requested."""
    ends = not cluster or (down and index == count - 1)
    after = TeardownPolicy.DOWN if ends else TeardownPolicy.KEEP
    named = _cluster(name, cluster, index)
    return commands.prepare_launch(task, cluster=named, after=after, kept=kept or {}, project=project)


def _cluster(name: str, cluster: str, index: int) -> str:
    return cluster or f"{name}-{index + 1}"


def _settings(record: PipelineRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.launch_request or "{}")
    return {"cluster": "", "down": False, "accept_host_keys": False, **found}


def missing_pipeline_secret(record: PipelineRecord, environ: Mapping[str, str]) -> UserError | None:
    """Return why this process cannot run the present stage (a missing secret), or None."""
    traces: list[str] = _settings(record).get("secrets", [""] * len(record.tasks))
    return missing_secret_error(
        record.tasks[record.stage], record.uid.rpartition("-")[0], traces[record.stage], environ
    )
