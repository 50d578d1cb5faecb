"""Carry out what members asked the service to do: launches are queued, other commands run as they do in a terminal.

An order is repeated after a crash. That is safe, because each command is: a launch has its run's id from the order, and
the others continue from what is on record.
"""

from __future__ import annotations

import json
from dataclasses import replace

from orchestrator.acting import acting_as
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.member_access import admit_member
from orchestrator.engine.operations.orders import prepare_order
from orchestrator.engine.operations.transfers import learn_run_buckets
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.unattended.handover import enqueue_job, find_handed_over_job, prepare_for_engine
from orchestrator.errors import ConflictError, CredentialsError, OrchError
from orchestrator.next_step import NextStep
from orchestrator.paths import Paths
from orchestrator.plan.observed import Outcome
from orchestrator.plan.steps import Done
from orchestrator.store.access_records import ACCESS
from orchestrator.store.failures import StoreError
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.store import Store

_QUEUED = ("launch", "resume")
_PASSING = (CredentialsError, StoreError)


def attend_order(where: Paths, services: Services, order: OrderRecord, narrator: Narrator) -> None:
    """Carry out an order for its member and record how it ended, unless another engine does.

    Raises:
        CredentialsError, ConflictError, StoreError: It is to be tried again.
    """
    with (
        acting_as(order.member),
        open_store(where, services, order.verb, order.project) as store,
        LeaseKeeper(store, order.uid, f"{order.verb} '{order.cluster}'", narrator, kind="order") as keeper,
    ):
        if not keeper.try_hold() or store.order(order.uid).state != "open":
            return
        if order.verb == ACCESS:
            store.end_order(order, _admit_member(store, services, where, narrator, order))
        else:
            store.end_order(order, carry_out_order(order, narrator, services))


def _admit_member(store: Store, services: Services, where: Paths, narrator: Narrator, order: OrderRecord) -> Outcome:
    try:
        done = admit_member(store, services, where, narrator, order)
    except (*_PASSING, ConflictError):
        raise
    except OrchError as error:
        return _to_outcome(error)
    return Outcome(status=0, code="", what=done)


def carry_out_order(order: OrderRecord, narrator: Narrator, services: Services) -> Outcome:
    """Carry out an order, and return how it ended.

    Raises:
        CredentialsError, ConflictError, StoreError: It is to be tried again.
    """
    try:
        if order.verb in _QUEUED and (queued := _find_queued_run(order)):
            return queued
        if order.verb == "exec" and (command_end := _find_ended_command(order)):
            return command_end
        ready = prepare_order(order.verb, order.cluster, json.loads(order.arguments), order.project)
        if order.verb == "exec" and ready.job is not None:
            ready = replace(ready, job=replace(ready.job, run_id=order.run_id, digest=order.uid))
        ready.raise_refusal()
    except _PASSING:
        raise
    except OrchError as error:
        return _to_outcome(error)
    try:
        queue = order.verb in _QUEUED
        if queue:
            ended = _queue_run(order, ready, narrator, services)
        else:
            ended = drive_cluster(ready, narrator, services=services)
        step = ended.step
    except (*_PASSING, ConflictError):  # another orch works on the cluster
        raise
    except OrchError as error:
        return _to_outcome(error)
    if isinstance(step, Done):
        return Outcome(status=int(step.status), code="", what=step.message)
    return Outcome(status=int(step.status), code=step.code, what=step.what, why=step.why, next_step=step.next_step)


def _to_outcome(error: OrchError) -> Outcome:
    return Outcome(
        status=int(error.exit_status),
        code=error.code,
        what=error.what,
        why=error.why,
        next_step=NextStep.parse(error.next_step),
    )


def _find_queued_run(order: OrderRecord) -> Outcome | None:
    """Return the outcome when an engine that was killed had queued the run already."""
    with open_reader(order.project) as reader:
        found = reader.find_run(order.run_id) if order.run_id else None
    if found is None or order.verb == "resume":
        return None
    cluster, job = found
    return Outcome(status=0, code="", what=f"job {job.id} is queued on '{cluster}'")


def _find_ended_command(order: OrderRecord) -> Outcome | None:
    """Return how a command ended whose engine was killed before it recorded the end of the order."""
    with open_reader(order.project) as reader:
        found = reader.find_run(order.run_id)
    if found is None or found[1].state != "ended":
        return None
    job = found[1]
    return Outcome(status=job.status or 0, code=job.code, what=job.what, why=job.why, next_step=job.next_step)


def _start_stopped_machines(order: OrderRecord, narrator: Narrator, services: Services) -> CommandResult | None:
    """Start the machines of a stopped cluster, as the plan of a launch says; return how that failed, or None."""
    with open_reader(order.project) as reader:
        record = reader.cluster(order.cluster)
    if record is None or record.desired_state != "stopped":
        return None
    started = drive_cluster(commands.prepare_start(order.cluster, project=order.project), narrator, services=services)
    return started if started.status else None


def _queue_run(order: OrderRecord, ready: PreparedCommand, narrator: Narrator, services: Services) -> CommandResult:
    """Queue the job of a launch or resume, whose id the order fixes; engines drive it from there."""
    ready = prepare_for_engine(learn_run_buckets(ready), narrator.note)
    if (same := find_handed_over_job(ready)) is not None:
        return same
    if (refused := _start_stopped_machines(order, narrator, services)) is not None:
        return refused
    job = ready.job
    if job is not None and not job.run_id:
        ready = replace(ready, job=replace(job, run_id=order.run_id))
    return enqueue_job(ready, narrator.note)
