"""Handing a command to an unattended engine: its files are copied, its record says so, an engine is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.cloud_identities.role import name_caller
from orchestrator.computer import name_engine
from orchestrator.engine.loop.job_opening import record_estimate
from orchestrator.engine.loop.queue import ENGINE
from orchestrator.engine.loop.results import open_writable_bucket, upload_task
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.services import real_services
from orchestrator.engine.state.identities import find_access
from orchestrator.engine.state.kept_files import make_room
from orchestrator.engine.state.names import new_run_id
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.planned_trees import find_planned_tree, note_grown_files
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.state.shared_trees import share_tree
from orchestrator.engine.unattended.secrets import secrets_fingerprint
from orchestrator.errors import StorageError, UserError
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.steps import Done
from orchestrator.private_files import make_private_folder, open_private
from orchestrator.providers.protocol import LogsInAsOwner
from orchestrator.store.records import JobRecord, NewJob
from orchestrator.task.model import Task

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

LOG = "engine.log"
START_SECONDS = 10.0  # that a command waits for the engine that it started; it continues without an error then
START_POLL = 0.05
ENGINE_ENV_NAMES = "ORCH_ENGINE_SECRETS"  # names of the secrets that an engine was started with


def prepare_for_engine(ready: PreparedCommand, report: Callable[[str], None]) -> PreparedCommand:
    """Return the same command, such that another process can fulfil it later: what it sends is copied now.

    Args:
        ready: The command.
        report: Receives why another server could not fulfil it, and other notes.
    """
    desired, job = ready.desired, ready.job
    if not isinstance(desired, Run) or job is None or job.kind == "exec":
        return ready
    where = load_paths()
    provider = real_services(where).provider(desired.candidates[0].provider)
    if isinstance(provider, LogsInAsOwner):
        provider.check_unattended_login(desired.candidates[0])
    with open_store(where, real_services(where), project=ready.project) as store:
        found = {one.label: find_planned_tree(where, ready.trees, one.source, one.digest) for one in desired.trees}
        make_room(store, where, found.values(), real_services(where).clock.now())
        for tree in found.values():
            if problem := share_tree(store, where, tree, job.bucket):
                report(problem)
    for tree in ready.trees:
        note_grown_files(tree, report)
    kept = {
        "trees": {label: tree.digest for label, tree in found.items()},
        "secrets": secrets_fingerprint(job.digest, secret_values(ready)),
        "accept_host_keys": ready.accept_host_keys,
    }
    files = json.dumps(kept, sort_keys=True)
    job = replace(job, launch_request=files, watch=ENGINE)
    return replace(ready, job=job)


def secret_values(ready: PreparedCommand) -> dict[str, str]:
    """Return the values of its `secrets` by name. Variables of `envs` that are shown as secrets are stored."""
    if not isinstance(ready.desired, Run) or ready.job is None or not ready.job.task:
        return {}
    names = Task.from_json(ready.job.task).secret_names
    return {name: value.reveal() for name, value in ready.desired.env if name in names}


def find_blocking_job(ready: PreparedCommand) -> JobRecord | None:
    """Return the launch or resume that has to end first on the same cluster, or None."""
    job = ready.job
    if job is None or job.kind == "exec":
        return None
    with open_store(load_paths(), real_services(load_paths()), project=ready.project) as store:
        cluster = store.cluster(ready.cluster)
        if cluster is None or cluster.desired_state == "down":
            return None  # its teardown is finished first, then everything starts again
        others = [one for one in store.jobs(cluster) if _blocks(one, job)]
    return others[-1] if others else None


def find_handed_over_job(ready: PreparedCommand) -> CommandResult | None:
    """Return the result to print when this very job was handed over before: the same command twice is one job."""
    new = ready.job
    if new is None or new.kind == "exec":
        return None
    with open_store(load_paths(), real_services(load_paths()), project=ready.project) as store:
        cluster = store.cluster(ready.cluster)
        if cluster is None or cluster.desired_state != "up":
            return None
        same = [job for job in store.jobs(cluster) if _same(job, new) and job.state != "ended" and job.watch == ENGINE]
    if not same:
        return None
    job = same[-1]
    same_one = f"job {job.id} on '{ready.cluster}' is this same command, and it {_doing(job)}"
    message = f"{same_one}; see: orch queue   another one: the same with --env TRIAL=2"
    return CommandResult(step=Done(message), outcomes=(), job_id=job.id, run_id=job.run_id)


def enqueue_job(ready: PreparedCommand, report: Callable[[str], None]) -> CommandResult:
    """Put the job at the end of its cluster's queue; `ready` comes from `prepare_for_engine`.

    Args:
        ready: The command.
        report: Receives notes for the user.
    """
    ready.raise_refusal()
    job = ready.job
    if job is None:
        raise ValueError("only a program can be queued")
    if ready.take_over:
        why = "another job is before it on the cluster, and until its turn no process would drive the run"
        raise UserError(
            "--take-over cannot wait in a queue", why, "end that job first, or name another cluster: -c NAME"
        )
    services = real_services(load_paths())
    bucket: Bucket | None = None
    if job.bucket:
        with open_reader(ready.project) as reader:
            caller = name_caller(reader.installation() or "", reader.member)
            access = find_access(reader, services.access, caller, task=job.task)
        bucket = open_writable_bucket(job.bucket, access)
    with open_store(load_paths(), services, project=ready.project) as store:
        cluster = store.open_cluster(ready.cluster, ready.summary)
        run_id = job.run_id or new_run_id(ready.cluster)
        record = store.queue_job(cluster, replace(job, run_id=run_id))
        record_estimate(store, ready, run_id)
        if bucket is not None:
            upload_task(bucket, record, report)
    message = f"job {record.id} is queued on '{ready.cluster}'; see: orch queue {ready.cluster}"
    if cluster.desired_state == "stopped":
        message = (
            f"job {record.id} is queued; '{ready.cluster}' is stopped, the job runs after: orch start {ready.cluster}"
        )
    return CommandResult(step=Done(message), outcomes=(), job_id=record.id, run_id=record.run_id)


def start_engine(secrets: Mapping[str, str] = MappingProxyType({})) -> int:
    """Start an unattended engine that ends when nothing is left to do, and return its process id when one works.

    One is enough for a user of a computer with the same credentials: a second one sees the first and ends. It outlives
    this command, terminal and login.

    Args:
        secrets: Secrets of the job that is handed over, for its environment; they are kept nowhere else.
    """
    where = load_paths()
    make_private_folder(where.state)
    argv = [sys.executable, "-m", "orchestrator", "serve", "--engine-only", "--until-idle"]
    try:
        with open(where.state / LOG, "ab", opener=open_private) as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=os.sep,
                env={**os.environ, **secrets, "PYTHONUNBUFFERED": "1", ENGINE_ENV_NAMES: ",".join(secrets)},
            )
    except OSError as error:
        raise StorageError(
            "the unattended engine cannot be started",
            str(error),
            "the job is on record; when that is fixed: orch serve --engine-only",
        ) from error
    _wait_for_engine(child)
    child.returncode = 0  # it is detached from here on: no warning when this object is deleted
    return child.pid


def _wait_for_engine(child: subprocess.Popen[bytes]) -> None:
    """Wait until an engine works on this computer, for a while, so that a command after this one sees it."""
    until = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < until:
        with open_reader() as reader:
            if reader.lease_holder(f"engine:{name_engine(os.environ)}"):
                return
        time.sleep(START_POLL)


def start_engine_for_waiting_jobs(names: Iterable[str]) -> bool:
    """Start an engine when jobs wait for one on these clusters, and return whether any do."""
    waiting = set(names)
    with open_store(load_paths(), real_services(load_paths())) as store:
        found = any(cluster.name in waiting and cluster.desired_state == "up" for cluster, _ in store.unattended_jobs())
    if found:
        start_engine()
    return found


def _blocks(other: JobRecord, new: NewJob) -> bool:
    if other.state == "ended" or other.kind == "exec":
        return False
    return not _same(other, new)  # the same command resumes its own job


def _same(other: JobRecord, new: NewJob) -> bool:
    return other.kind == new.kind and other.digest == new.digest


def _doing(job: JobRecord) -> str:
    return "waits in the queue" if job.state == "queued" else "is running"
