"""Orders that this process carries out, with the store of this computer's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.client.kept_machines import describe_kept_machines
from orchestrator.client.local import LocalDocuments, open_own_reader, read_record_time
from orchestrator.client.local_pipelines import PipelineEnd, carry_out_pipeline_end, plan_pipeline_end
from orchestrator.client.orders import Costs, Order, OrderCalls, PlannedOrder, StoppedWatching
from orchestrator.documents.queries import ClustersQuery
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.operations.end_unrecorded import end_unrecorded
from orchestrator.engine.operations.orders import list_jobs_that_end, prepare_order
from orchestrator.engine.operations.own_key import refuse_exec_without_key
from orchestrator.engine.operations.transfers import is_large, learn_run_buckets, list_launch_transfers
from orchestrator.engine.preparation.spending import describe_cost, list_machines_to_pay
from orchestrator.engine.state.kept_files import drop_stale_trees
from orchestrator.engine.state.store_backup import back_up_if_due
from orchestrator.engine.unattended import handover
from orchestrator.errors import NotFoundError, RecordedRequestError
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.preview import render_head, render_plan
from orchestrator.plan.preview_format import describe_idle
from orchestrator.store.failures import StoreError

if TYPE_CHECKING:
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
    from orchestrator.errors import OrchError
    from orchestrator.plan.preview import PreviewFormat


def make_preview_plan(ready: PreparedCommand) -> Plan:
    """Return the plan of a command, as if each step succeeded."""
    return make_plan(ready.desired, ready.recorded, ready.facts)


class LocalPlan(PlannedOrder):
    """The plan of a command that this process prepared.

    Attributes:
        ready: The command.
    """

    def __init__(self, ready: PreparedCommand, ends: tuple[str, ...] = ()) -> None:
        """Take a prepared command.

        Args:
            ready: The command.
            ends: Running jobs that end with the machines, a line each.
        """
        self.ready = ready
        self.ends = ends
        self.verb, self.cluster, self.notes, self.doubts = ready.verb, ready.cluster, ready.notes, ready.doubts
        self.warnings = tuple(_list_warnings(ready))
        self.idle = describe_idle(ready.desired) if isinstance(ready.desired, Run) else ""
        self.has_run = ready.job is not None and ready.job.kind != "exec"

    @property
    def refusal(self) -> OrchError | None:
        return self.ready.refusal()

    @property
    def expected_status(self) -> int:
        return int(make_preview_plan(self.ready).ending.status)

    def list_doubtful(self) -> list[str]:
        return [*(f"note: {note}" for note in self.notes), *(f"warning: {doubt}" for doubt in self.doubts)]

    def render(self, form: PreviewFormat, *, verbose: bool, width: int, command: str | None) -> str:
        plan, ready = make_preview_plan(self.ready), self.ready
        return render_plan(
            plan, form, verbose=verbose, width=width, command=command, advice=ready.advice, refusal=ready.refusal()
        )

    def render_head(self, width: int) -> str:
        return render_head(make_preview_plan(self.ready), width=width, advice=self.ready.advice)


class LocalOrders(OrderCalls):
    """Carries out orders in the foreground: no record of the order is made, and its end is returned."""

    def plan(self, order: Order) -> LocalPlan | PipelineEnd:
        if order.verb in ("cancel", "down") and (end := plan_pipeline_end(order)) is not None:
            return end
        arguments = {"job": order.job, "force": order.force, "abandon": order.abandon}
        ready = prepare_order(order.verb, order.cluster, arguments)
        with open_own_reader() as store:
            return LocalPlan(ready, list_jobs_that_end(store, ready, read_record_time()))

    def find_costs(self, planned: PlannedOrder) -> tuple[PlannedOrder, Costs]:
        if isinstance(planned, PipelineEnd):
            return planned, Costs()
        ready = learn_run_buckets(_ready_of(planned))
        transfers, rented = list_launch_transfers(ready), list_machines_to_pay(ready)
        costs = Costs(
            rented=describe_cost(rented) if rented else "",
            transfers=tuple(map(str, transfers)),
            large=is_large(transfers),
        )
        return LocalPlan(ready), costs

    def carry_out(self, planned: PlannedOrder, narrator: Narrator, *, follow: bool) -> CommandResult:
        if isinstance(planned, PipelineEnd):
            return carry_out_pipeline_end(planned, narrator)
        ready = _ready_of(planned)
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
            raise end_unrecorded(ready.cluster, failure, narrator) from failure
        except KeyboardInterrupt:
            raise StoppedWatching(_describe_interrupted(planned)) from None
        if ready.verb == "start" and ending.status == 0 and handover.start_engine_for_waiting_jobs((ready.cluster,)):
            narrator.note("an unattended engine continues the queue; see: orch queue")
        back_up_if_due(load_paths(), lambda note: narrator.note(f"note: {note}"))
        drop_stale_trees()
        return ending


def _ready_of(planned: PlannedOrder) -> PreparedCommand:
    if not isinstance(planned, LocalPlan):
        raise TypeError("the plan is that of a service")
    return planned.ready


def _drive(ready: PreparedCommand, narrator: Narrator, *, follow: bool) -> CommandResult:
    refuse_exec_without_key(ready, narrator)
    return drive_cluster(ready, narrator, follow=follow)


def _leave_to_engine(ready: PreparedCommand, narrator: Narrator) -> CommandResult:
    """Return when the program runs or is queued (`--detach`); an unattended engine continues."""
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


def _list_warnings(ready: PreparedCommand) -> list[str]:
    """Return a line for each concern that would end the training, as far as it can be predicted."""
    return [
        f"warning: on {advice['hardware']['name']} it {concern['words']}: {' '.join(concern['fix'])}".rstrip(": ")
        for advice in ready.advice
        for concern in advice["concerns"]
        if concern["fatal"]
    ]


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
