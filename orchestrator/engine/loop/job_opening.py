"""Open the job of a command in the store, or continue the one that a killed command left."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.engine.loop.epoch import RunHold, look_for_driver
from orchestrator.engine.loop.finished_jobs import record_finished_jobs, refuse_if_busy
from orchestrator.engine.loop.results import upload_task
from orchestrator.engine.loop.session import Session
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.state.kept_files import make_room
from orchestrator.engine.state.names import INSTALLATION, RUN_ID, RUN_KEY, UID, new_run_id, slice_stem
from orchestrator.engine.state.planned_trees import find_planned_tree
from orchestrator.engine.state.shared_trees import share_tree
from orchestrator.errors import ConflictError
from orchestrator.offers.predictions import make_estimate
from orchestrator.plan.desired import Desired, Run
from orchestrator.remote.tree import Tree
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.store.store import Store
from orchestrator.values import Secret, Unknown, fill_unknowns

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

_SHOWN_BYTES = 64 << 20  # a copy of less takes no time


def open_job(session: Session, ready: PreparedCommand, bucket: Bucket | None) -> None:
    """Open the job, or continue the one that a killed command left, and fill in what was unknown."""
    new, desired, replaceable, driven = ready.job, ready.desired, 0, ""
    if new is None or not isinstance(desired, Run):
        return
    record_finished_jobs(session, except_digest=new.digest)
    record = refuse_if_busy(session, new)
    new = replace(new, launch_request=_keep_files(session, ready, new))
    run_id = record.run_id if record is not None else new.run_id or new_run_id(ready.cluster)
    if bucket is not None:
        try:
            claim = look_for_driver(session, bucket, run_id, record, take_over=ready.take_over)
        except ConflictError as error:
            if record is None:
                raise
            driven = error.what  # a job that lost its run ends, however often it is continued
        else:
            replaceable = claim.number
            if claim.epoch is not None:  # attempts of several computers differ, and so do the names of their logs
                new = replace(new, first_attempt=max(new.first_attempt, claim.epoch.attempt + 1))
    if record is None:
        record = session.store.open_job(session.cluster, replace(new, run_id=run_id))
        record_estimate(session.store, ready, run_id)
    elif new.watch and not record.watch:
        session.store.set_watch(session.cluster, record.id, new.watch, new.launch_request)
    session.store.trust_checkpoints(session.cluster, run_id, ready.trusted)
    if bucket is not None:
        upload_task(bucket, record, session.narrator.note)
        session.hold = RunHold(bucket, session.store.installation, record, replaceable)
        session.hold.taken_over = driven
    session.job = record
    session.desired = _fill_unknowns(desired, session.store, session.cluster, record)


def _keep_files(session: Session, ready: PreparedCommand, new: NewJob) -> str:
    """Copy what is sent before anything is created, and return the launch request that names it.

    A later attempt sends the copies, whatever happens to the originals, and so does another process that continues.
    """
    desired = ready.desired
    if new.launch_request or not isinstance(desired, Run) or not desired.trees:
        return new.launch_request
    where = session.paths
    trees = {one.label: find_planned_tree(where, session.trees, one.source, one.digest) for one in desired.trees}
    make_room(session.store, where, trees.values(), session.services.clock.now())
    for label, tree in trees.items():
        _keep_tree(session, tree, new.bucket, f"copy {label}")
    kept = {label: tree.digest for label, tree in trees.items()}
    return json.dumps({"trees": kept, "accept_host_keys": ready.accept_host_keys}, sort_keys=True)


def _keep_tree(session: Session, tree: Tree, bucket: str, label: str) -> None:
    """Copy a tree, also for the other computers of a team."""

    def report(done: int, total: int) -> None:
        if total >= _SHOWN_BYTES:
            session.narrator.progress(label, done, total)

    if problem := share_tree(session.store, session.paths, tree, bucket, report):
        session.narrator.note(problem)


def record_estimate(store: Store, ready: PreparedCommand, run_id: str) -> None:
    """Record what the plan estimated for a run of the bundled trainer, to be compared with what is measured."""
    if not ready.advice or not isinstance(ready.desired, Run):
        return
    if estimate := make_estimate(ready.advice, ready.desired.candidates):
        store.record_prediction(run_id, json.dumps(estimate, sort_keys=True))


def _fill_unknowns(desired: Run, store: Store, cluster: ClusterRecord, record: JobRecord) -> Desired:
    known: dict[Unknown, str | Secret] = {UID: cluster.uid, RUN_ID: record.run_id, INSTALLATION: store.installation}
    if desired.run_key is not None:
        known[RUN_KEY] = Secret("ORCH_RUN_KEY", store.run_key(record.run_id))
    filled = fill_unknowns(replace(desired, trusted=store.trusted_checkpoints(record.run_id)), known)
    job = replace(filled.job, id=record.id) if filled.job is not None else None
    variants = tuple(replace(one, job=replace(one.job, id=record.id) if one.job else None) for one in filled.variants)
    stem = slice_stem(cluster.name, cluster.uid)
    return replace(filled, slice_stem=stem, job_id=record.id, job=job, variants=variants)
