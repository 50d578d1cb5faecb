"""Several tasks one after the other: a file with several documents. Each stage is a launch of its own.

The record says which stage is at work; a stage's job says how it ended. Cut off anywhere, the same command, or an
unattended engine, goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.engine import prepare, wish
from orchestrator.engine.background import for_engine
from orchestrator.engine.drive import drive
from orchestrator.engine.entrusted import lack, trace_of
from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.opening import open_store
from orchestrator.engine.ready import Ending, Ready
from orchestrator.engine.snapshots import keep
from orchestrator.engine.turns import ENGINE
from orchestrator.engine.world import World, real_world
from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.paths import Paths, paths
from orchestrator.plan.desired import After
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.spec.task import Task
from orchestrator.store.records import JobRecord, PipelineRecord
from orchestrator.store.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """tasks: in order. cluster: all stages on this one; "": each stage on a cluster of its own, ended after it."""

    name: str
    tasks: tuple[Task, ...]
    cluster: str = ""
    down: bool = False

    @property
    def uid(self) -> str:
        """The same for the same command, so that it goes on with what it left."""
        content = json.dumps([self.name, self.cluster, *(task.to_json() for task in self.tasks)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def stages(wanted: Wanted) -> tuple[Ready, ...]:
    """Every stage, prepared for a preview."""
    return tuple(_stage(wanted.name, wanted.cluster, wanted.down, index, task, len(wanted.tasks))
                 for index, task in enumerate(wanted.tasks))  # fmt: skip


def run_pipeline(wanted: Wanted, narrator: Narrator, world: World | None = None) -> Ending:
    """Run it to its end, or go on with it. The status is that of the stage that ended it."""
    where = paths()
    world = world or real_world(where)
    with open_store(where, world) as store:
        record = _open(store, wanted, {})
    return _drive(where, world, record, narrator, {task.to_json(): task for task in wanted.tasks})


def leave_to_engine(wanted: Wanted) -> PipelineRecord:
    """Put it on record for an unattended engine, with copies of the files that it sends."""
    where = paths()
    kept: list[dict[str, str]] = []
    for task in wanted.tasks:
        sent, trees = wish.trees(task)
        kept.append({one.label: str(keep(where, tree)) for one, tree in zip(sent, trees, strict=True)})
    with open_store(where, real_world(where)) as store:
        traces = [trace_of(wanted.uid, {one.name: one.value for one in task.secrets}) for task in wanted.tasks]
        return _open(store, wanted, {"watch": ENGINE, "trees": kept, "secrets": traces})


def is_left_to_engines(record: PipelineRecord) -> bool:
    return bool(_wish(record).get("watch") == ENGINE)


def attend_pipeline(where: Paths, world: World, record: PipelineRecord, narrator: Narrator) -> bool:
    """As an unattended engine: whether it is over, or somebody else is at it."""
    return _drive(where, world, record, narrator, {}).status != Exit.CONFLICT


def _open(store: Store, wanted: Wanted, more: dict[str, Any]) -> PipelineRecord:
    living = [one for one in store.pipelines() if one.uid.startswith(wanted.uid) and one.state == "running"]
    if living:
        return living[-1]
    count = sum(one.uid.startswith(wanted.uid) for one in store.pipelines())
    settings = {"cluster": wanted.cluster, "down": wanted.down, **more}
    tasks = tuple(task.to_json() for task in wanted.tasks)
    return store.open_pipeline(wanted.name, tasks, json.dumps(settings), uid=f"{wanted.uid}-{count + 1}")


def _drive(where: Paths, world: World, record: PipelineRecord, narrator: Narrator, tasks: Mapping[str, Task]) -> Ending:
    """tasks: with their secrets, by their JSON, where the caller has them."""
    with (
        open_store(where, world) as store,
        LeaseKeeper(store, record.uid, "pipeline", narrator, kind="pipeline") as keeper,
    ):
        if not keeper.try_hold():
            words = f"pipeline '{record.name}' is being driven by another orch"
            return Ending(GiveUp("conflict", Exit.CONFLICT, words, next_step="orch queue"))
        while True:
            record = store.pipeline(record.uid)
            if record.state != "running":
                return _ended(record)
            job = _job_of(store, record)
            if job is None or job.state != "ended":
                ready = _next(store, record, job, tasks)
                narrator.note(f"stage {record.stage + 1} of {len(record.tasks)}: cluster '{ready.cluster}'")
                drive(ready, narrator, world=world)
                job = _job_of(store, record)
            if job is None or job.state != "ended":
                words = f"stage {record.stage + 1} of '{record.name}' is not over"
                return Ending(GiveUp("failure", Exit.FAILURE, words, next_step="the same command again goes on"))
            _advance(store, keeper, record, job)


def _advance(store: Store, keeper: LeaseKeeper, record: PipelineRecord, job: JobRecord) -> None:
    """Book the end of a stage."""
    lease, stage = keeper.lease, record.stage + 1
    if job.status != Exit.OK:
        what = f"stage {stage} of {len(record.tasks)}: {job.what}"
        store.end_pipeline(record.uid, "ended", job.status or Exit.FAILURE, what, lease=lease)
    elif stage == len(record.tasks):
        store.end_pipeline(record.uid, "ended", Exit.OK, f"all {stage} stages ended well", lease=lease)
    else:
        store.advance_pipeline(record.uid, stage, lease=lease)


def _ended(record: PipelineRecord) -> Ending:
    words = f"pipeline '{record.name}': {record.what}"
    if record.status == Exit.OK:
        return Ending(Done(words))
    return Ending(GiveUp("program-failed", record.status or Exit.FAILURE, words, next_step="orch queue"))


def _job_of(store: Store, record: PipelineRecord) -> JobRecord | None:
    """The present stage's job, on whatever cluster, gone or not."""
    jobs = [job for job in store.pipeline_jobs(record.uid) if job.stage == record.stage]
    return jobs[-1] if jobs else None


def _next(store: Store, record: PipelineRecord, job: JobRecord | None, tasks: Mapping[str, Task]) -> Ready:
    settings, index = _wish(record), record.stage
    written = record.tasks[index]
    task = tasks.get(written) or prepare.with_secrets(Task.from_json(written))
    kept = settings.get("trees", [{}] * len(record.tasks))[index]
    name = _cluster(record.name, settings["cluster"], index)
    if job is not None:
        return replace(prepare.go_on(name, job), of=job.cluster_uid)
    ready = _stage(record.name, settings["cluster"], settings["down"], index, task, len(record.tasks), kept)
    if ready.job is None:
        return ready
    ready = for_engine(ready) if is_left_to_engines(record) else ready
    assert ready.job is not None  # noqa: S101  # a launch has one
    # The pipeline drives it, not the queue: no watch of its own.
    return replace(ready, job=replace(ready.job, pipeline=record.uid, stage=index, watch=""))


def _stage(
    name: str, cluster: str, down: bool, index: int, task: Task, count: int, kept: Mapping[str, str] | None = None
) -> Ready:
    """On a cluster of its own it goes down with its stage; on a shared one after the last, when that was asked."""
    ends = not cluster or (down and index == count - 1)
    after = After.DOWN if ends else After.KEEP
    return prepare.launch(task, cluster=_cluster(name, cluster, index), after=after, kept=kept or {})


def _cluster(name: str, cluster: str, index: int) -> str:
    return cluster or f"{name}-{index + 1}"


def _wish(record: PipelineRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.wish or "{}")
    return {"cluster": "", "down": False, **found}


def lacks(record: PipelineRecord, environ: Mapping[str, str]) -> UserError | None:
    """Why this process cannot drive its present stage: a secret is missing. None when it can."""
    traces: list[str] = _wish(record).get("secrets", [""] * len(record.tasks))
    return lack(record.tasks[record.stage], record.uid.rpartition("-")[0], traces[record.stage], environ)


def sources(record: PipelineRecord) -> set[str]:
    """Digests of the snapshots that its stages may still need."""
    return {Path(source).parent.name for stage in _wish(record).get("trees", []) for source in stage.values()}
