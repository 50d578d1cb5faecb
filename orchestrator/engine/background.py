"""Handing a command to an unattended engine: its files are kept, its record says so, an engine is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from orchestrator.engine.entrusted import trace_of
from orchestrator.engine.identity import new_run_id
from orchestrator.engine.opening import open_store
from orchestrator.engine.ready import Ending, Ready
from orchestrator.engine.results import leave_task, open_bucket
from orchestrator.engine.snapshots import is_snapshot, keep
from orchestrator.engine.turns import ENGINE
from orchestrator.engine.world import real_world
from orchestrator.errors import StorageError
from orchestrator.paths import Paths, paths
from orchestrator.plan.desired import Run
from orchestrator.plan.steps import Done
from orchestrator.remote.tree import read_tree
from orchestrator.store.records import JobRecord, NewJob

LOG = "engine.log"
ALSO_FOR = "ORCH_ENGINE_SECRETS"  # names of the secrets that an engine was started with


def for_engine(ready: Ready) -> Ready:
    """The same wish, such that another process can fulfil it later: what it sends is copied aside now."""
    desired, job = ready.desired, ready.job
    if not isinstance(desired, Run) or job is None or job.kind == "exec":
        return ready
    where = paths()
    trees = tuple(replace(tree, source=_kept(where, tree.source)) for tree in desired.trees)
    kept = {"trees": {tree.label: tree.source for tree in trees}, "secrets": trace_of(job.digest, secrets_of(ready))}
    wish = json.dumps(kept, sort_keys=True)
    return replace(ready, desired=replace(desired, trees=trees), job=replace(job, wish=wish, watch=ENGINE))


def secrets_of(ready: Ready) -> dict[str, str]:
    """The values of the secrets among its variables, by name."""
    env = ready.desired.env if isinstance(ready.desired, Run) else ()
    return {name: value.reveal() for name, value in env if value.is_secret}


def busy_with(ready: Ready) -> JobRecord | None:
    """The job that has to end first: another launch or resume on the same cluster. None: it can begin now."""
    job = ready.job
    if job is None or job.kind == "exec":
        return None
    with open_store(paths(), real_world(paths())) as store:
        cluster = store.cluster(ready.cluster)
        if cluster is None or cluster.wanted == "down":
            return None  # its end is finished first, then all begins anew
        others = [one for one in store.jobs(cluster) if _in_the_way(one, job)]
    return others[-1] if others else None


def left_already(ready: Ready) -> Ending | None:
    """What to say when this very job is left to an engine already: the same command twice is one job."""
    new = ready.job
    if new is None or new.kind == "exec":
        return None
    with open_store(paths(), real_world(paths())) as store:
        cluster = store.cluster(ready.cluster)
        if cluster is None or cluster.wanted != "up":
            return None
        same = [job for job in store.jobs(cluster) if _same(job, new) and job.state != "ended" and job.watch == ENGINE]
    if not same:
        return None
    job = same[-1]
    words = f"job {job.id} on '{ready.cluster}' is this very command, and it {_doing(job)}; see: orch queue"
    return Ending(Done(words), (), job.id, job.run_id)


def enqueue(ready: Ready) -> Ending:
    """Put the job at the end of its cluster's queue; `ready` comes from `for_engine`."""
    ready.check()
    job = ready.job
    if job is None:
        raise ValueError("only a program can be queued")
    bucket = open_bucket(job.bucket) if job.bucket else None
    with open_store(paths(), real_world(paths())) as store:
        cluster = store.open_cluster(ready.cluster, ready.summary)
        run_id = job.run_id or new_run_id(ready.cluster)
        record = store.queue_job(cluster, replace(job, run_id=run_id))
        if bucket is not None:
            leave_task(bucket, record)
    words = f"job {record.id} is queued on '{ready.cluster}'; see: orch queue {ready.cluster}"
    if cluster.wanted == "stopped":
        words = f"job {record.id} is queued; '{ready.cluster}' is stopped, it goes on after: orch start {ready.cluster}"
    return Ending(Done(words), (), record.id, record.run_id)


def start_engine(given: Mapping[str, str] = MappingProxyType({})) -> int:
    """Start an unattended engine that ends when nothing is left to do; its process id. One on a computer is enough:
    a second one sees the first and ends. It outlives this command, this terminal and this login.

    given: secrets of the job that is left to it, for its environment; they are kept nowhere else.
    """
    where = paths()
    where.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [sys.executable, "-m", "orchestrator", "serve", "--engine-only", "--until-idle"]
    try:
        with (where.state / LOG).open("ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=os.sep,
                env={**os.environ, **given, "PYTHONUNBUFFERED": "1", ALSO_FOR: ",".join(given)},
            )
    except OSError as error:
        raise StorageError(
            "the unattended engine cannot be started",
            str(error),
            "the job is on record; when that is mended: orch serve --engine-only",
        ) from error
    child.returncode = 0  # it is nobody's child from here on: no warning when this object goes
    return child.pid


def start_engine_for(names: Iterable[str]) -> bool:
    """Start an engine when jobs wait for one on these clusters; whether there are any."""
    wanted = set(names)
    with open_store(paths(), real_world(paths())) as store:
        found = any(cluster.name in wanted and cluster.wanted == "up" for cluster, _ in store.watchable())
    if found:
        start_engine()
    return found


def _in_the_way(other: JobRecord, new: NewJob) -> bool:
    if other.state == "ended" or other.kind == "exec":
        return False
    return not _same(other, new)  # the same command goes on with its own job


def _same(other: JobRecord, new: NewJob) -> bool:
    return other.kind == new.kind and other.digest == new.digest


def _doing(job: JobRecord) -> str:
    return "waits in the queue" if job.state == "queued" else "is at work"


def _kept(where: Paths, source: str) -> str:
    return source if is_snapshot(where, source) else str(keep(where, read_tree(Path(source))))
