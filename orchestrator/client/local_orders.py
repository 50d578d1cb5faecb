"""Orders that this process carries out, with the store of this computer's commands. Each call imports what it needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.client.kept_machines import describe_kept_machines
from orchestrator.client.local import LocalDocuments, open_own_reader, read_record_time
from orchestrator.client.local_plan import LocalPlan, ready_of
from orchestrator.client.orders import Costs, Order, OrderCalls, PlannedOrder, StoppedWatching
from orchestrator.documents.queries import ClustersQuery
from orchestrator.errors import NotFoundError, OrchError, RecordedRequestError
from orchestrator.store.failures import StoreError

if TYPE_CHECKING:
    from orchestrator.client.local_pipelines import PipelineEnd
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
    from orchestrator.engine.progress import DescribedNarrator


class LocalOrders(OrderCalls):
    """Carries out orders in the foreground: no record of the order is made, and its end is returned."""

    elsewhere = False

    def plan(self, order: Order) -> LocalPlan | PipelineEnd:
        if order.verb == "launch":
            return LocalPlan(_prepare_launch(order))
        if order.verb == "resume":
            return LocalPlan(_prepare_resume(order))
        if order.verb == "exec":
            return LocalPlan(_prepare_exec(order))
        if order.verb in ("cancel", "down"):
            from orchestrator.client.local_pipelines import plan_pipeline_end

            if (end := plan_pipeline_end(order)) is not None:
                return end
        from orchestrator.engine.operations.orders import list_jobs_that_end, prepare_order

        arguments = {"job": order.job, "force": order.force, "abandon": order.abandon}
        ready = prepare_order(order.verb, order.cluster, arguments)
        with open_own_reader() as store:
            return LocalPlan(ready, list_jobs_that_end(store, ready, read_record_time()))

    def find_costs(self, planned: PlannedOrder) -> tuple[PlannedOrder, Costs]:
        if not isinstance(planned, LocalPlan):  # the end of a pipeline
            return planned, Costs()
        from orchestrator.engine.operations.transfers import is_large, learn_run_buckets, list_launch_transfers
        from orchestrator.engine.preparation.spending import describe_cost, list_machines_to_pay

        ready = learn_run_buckets(ready_of(planned))
        transfers, rented = list_launch_transfers(ready), list_machines_to_pay(ready)
        costs = Costs(
            rented=describe_cost(rented) if rented else "",
            transfers=tuple(map(str, transfers)),
            large=is_large(transfers),
        )
        return LocalPlan(ready), costs

    def record_ends(self, cluster: str, narrator: DescribedNarrator) -> None:
        from orchestrator.engine.operations.refresh import refresh_cluster

        with suppress(OrchError):  # the next command records them
            refresh_cluster(cluster, narrator)

    def carry_out(self, planned: PlannedOrder, narrator: DescribedNarrator, *, follow: bool) -> CommandResult:
        from orchestrator.client.local_pipelines import PipelineEnd, carry_out_pipeline_end
        from orchestrator.engine.state.kept_files import drop_stale_trees
        from orchestrator.engine.state.store_backup import back_up_if_due
        from orchestrator.engine.unattended import handover
        from orchestrator.paths import load_paths

        if isinstance(planned, PipelineEnd):
            return carry_out_pipeline_end(planned, narrator)
        ready = ready_of(planned)
        try:
            if follow or not planned.has_run:
                ending = _drive(ready, narrator, follow=follow)
            else:
                ending = _leave_to_engine(ready, narrator)
        except RecordedRequestError:
            handover.start_engine()
            raise
        except StoreError as failure:
            if ready.verb != "down":
                raise
            from orchestrator.engine.operations.end_unrecorded import end_unrecorded

            raise end_unrecorded(ready.cluster, failure, narrator) from failure
        except KeyboardInterrupt:
            raise StoppedWatching(_describe_interrupted(planned)) from None
        if ready.verb == "start" and ending.status == 0 and handover.start_engine_for_waiting_jobs((ready.cluster,)):
            narrator.note("an unattended engine continues the queue; see: orch queue")
        back_up_if_due(load_paths(), lambda note: narrator.note(f"note: {note}"))
        drop_stale_trees()
        return ending


def _prepare_launch(order: Order) -> PreparedCommand:
    from orchestrator.engine.preparation.commands import prepare_launch
    from orchestrator.engine.training.advice import add_advice
    from orchestrator.plan.teardown import TeardownPolicy

    if order.file is None:
        raise ValueError("a launch needs a task file")
    after = TeardownPolicy.DOWN if order.down else TeardownPolicy.KEEP
    task = order.file.only
    ready = prepare_launch(task, cluster=order.cluster or None, after=after, force_setup=order.force_setup)
    ready = ready.refuse_options(order.options)
    notes = tuple(dict.fromkeys((*order.file.notes, *ready.notes)))
    return add_advice(replace(ready, notes=notes, accept_host_keys=order.accept_host_keys), task)


def _prepare_exec(order: Order) -> PreparedCommand:
    from orchestrator.engine.preparation.commands import prepare_exec

    command = order.command
    if command is None:
        raise ValueError("an exec needs a command")
    ready = prepare_exec(
        order.cluster,
        command.line,
        hosts=command.hosts,
        workdir=command.workdir,
        env=command.env,
        devices=command.devices,
    )
    return replace(ready, accept_host_keys=order.accept_host_keys, identity=command.identity)


def _prepare_resume(order: Order) -> PreparedCommand:
    from orchestrator.engine.preparation.resume import prepare_resume
    from orchestrator.plan.teardown import TeardownPolicy

    record = order.record
    if record is None:
        raise ValueError("a resume needs what it takes from a record")
    ready = prepare_resume(
        order.run,
        cluster=order.cluster or None,
        bucket=record.bucket,
        after=None if record.down is None else TeardownPolicy.DOWN if record.down else TeardownPolicy.KEEP,
        force=record.again,
        take_over=record.take_over,
        consent=record.consent,
        consent_to_load=record.consent_to_load,
    )
    return replace(ready, accept_host_keys=order.accept_host_keys, notes=(*record.notes, *ready.notes))


def _drive(ready: PreparedCommand, narrator: Narrator, *, follow: bool) -> CommandResult:
    from orchestrator.engine.loop.drive import drive_cluster
    from orchestrator.engine.operations.own_key import refuse_exec_without_key

    refuse_exec_without_key(ready, narrator)
    return drive_cluster(ready, narrator, follow=follow)


def _leave_to_engine(ready: PreparedCommand, narrator: Narrator) -> CommandResult:
    """Return when the program runs or is queued (`--detach`); an unattended engine continues."""
    from orchestrator.engine.unattended import handover

    ready = handover.prepare_for_engine(ready, narrator.note)
    same = None if ready.continued_uid else handover.find_handed_over_job(ready)
    other = None if same or ready.continued_uid else handover.find_blocking_job(ready)
    if same is not None:
        ending = same
    elif other is not None:
        narrator.note(f"queued behind job {other.id} on '{ready.cluster}'")
        ending = handover.enqueue_job(ready, narrator.note)
    else:
        ending = _drive(ready, narrator, follow=False)
    if ending.status == 0:
        handover.start_engine(handover.secret_values(ready))
    return ending


def list_kept_machines(cluster: str, idle: str) -> list[str]:
    """Return lines about the machines that a cluster has now, and that maybe cost money; none where it has none."""
    try:
        return describe_kept_machines(LocalDocuments().read_status(ClustersQuery(cluster=cluster)), idle)
    except NotFoundError:
        return []


def _describe_interrupted(planned: PlannedOrder) -> list[str]:
    """Return what continues without this process, and how to come back to it."""
    cluster = planned.cluster
    with open_own_reader() as store:
        record = store.cluster(cluster)
        running = [job for job in store.jobs(record) if job.state == "running"] if record is not None else []
    kept = list_kept_machines(cluster, planned.idle)
    if running:
        message = f"stopped watching; job {running[-1].id} continues to run"
        return [message, f"  orch watch {cluster}   to watch again", f"  orch cancel {cluster}   to end it", *kept]
    message = "interrupted; the state is recorded, and the same command again resumes from it"
    return [message, f"  orch status {cluster}   to see the state", *(kept or [f"  orch down {cluster}   to end it"])]
