"""Carry out what members asked the service to do: launches are queued, other commands run as they do in a terminal.

An order is repeated after a crash. That is safe, because each command is: a launch has its run's id from the order, and
the others continue from what is on record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.acting import acting_as
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.member_access import admit_member
from orchestrator.engine.operations.transfers import learn_run_buckets
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.preparation.trees import DescribedTree
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.training.advice import add_advice
from orchestrator.engine.unattended.handover import enqueue_job, find_handed_over_job, prepare_for_engine
from orchestrator.errors import ConflictError, CredentialsError, NotFoundError, OrchError, UserError
from orchestrator.next_step import NextStep
from orchestrator.paths import Paths
from orchestrator.plan.observed import Outcome
from orchestrator.plan.steps import Done
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.access_records import ACCESS
from orchestrator.store.failures import StoreError
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.store import Store
from orchestrator.task.model import Task

_QUEUED = ("launch", "resume")
_PASSING = (CredentialsError, StoreError)


def prepare_order(
    verb: str,
    cluster: str,
    arguments: Mapping[str, Any],
    project: str,
    kept: Mapping[str, DescribedTree] = MappingProxyType({}),
) -> PreparedCommand:
    """Prepare the command of an order, to preview or to carry it out.

    Args:
        verb: One of ORDER_VERBS.
        cluster: The name of the cluster; "" for a launch, whose task names it.
        arguments: `task` as JSON and `down` of a launch, `down` of a resume, `job` of a cancel,
            `force` of what an owner does to a cluster of another member; `uid` of the cluster and `run` of a resume,
            so that an order that is carried out late is not about another one of the same name.
        project: The project of the cluster.
        kept: What a plan of a launch knows of files that were or will be sent, by label.

    Raises:
        OrchError: There is no such cluster, job or run, or the command cannot be prepared.
    """
    force = bool(arguments.get("force"))
    _refuse_other_cluster(cluster, arguments.get("uid", ""), project)
    after = TeardownPolicy.DOWN if arguments.get("down") else TeardownPolicy.KEEP
    if verb == "launch":
        task = commands.add_secrets_from_environment(Task.from_json(arguments["task"]))
        ready = commands.prepare_launch(task, cluster=cluster or None, after=after, kept=kept, project=project)
        return add_advice(ready, task, project=project)
    if verb == "cancel":
        return commands.prepare_cancel(cluster, arguments.get("job"), force=force, project=project)
    made: Mapping[str, Callable[[], PreparedCommand]] = {
        "stop": lambda: commands.prepare_stop(cluster, force=force, project=project),
        "start": lambda: commands.prepare_start(cluster, force=force, project=project),
        "down": lambda: commands.prepare_down(cluster, force=force, project=project),
        "resume": lambda: prepare_resume(
            arguments.get("run") or cluster,
            cluster=cluster or None,
            after=TeardownPolicy.DOWN if arguments.get("down") else None,
            project=project,
        ),
    }
    if verb not in made:
        raise UserError(f"an order cannot be `{verb}`", "", f"one of: launch, cancel, {', '.join(made)}")
    return made[verb]()


def _refuse_other_cluster(cluster: str, uid: str, project: str) -> None:
    """Refuse what was ordered for a cluster that was deleted since. One of the same name may be anybody's work."""
    if not uid:
        return
    with open_reader(project) as reader:
        present = reader.cluster(cluster)
    if present is not None and present.uid != uid:
        raise NotFoundError(
            f"the cluster '{cluster}' of this order is deleted", "another one has its name now", "order it again"
        )


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
        ready = prepare_order(order.verb, order.cluster, json.loads(order.arguments), order.project)
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
