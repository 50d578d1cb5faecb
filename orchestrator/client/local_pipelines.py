"""`orch cancel` and `orch down` of a pipeline, carried out by this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.client.local import open_own_reader, read_record_time
from orchestrator.client.orders import Order, PlannedOrder, StoppedWatching
from orchestrator.engine.operations.end_unrecorded import end_unrecorded
from orchestrator.engine.operations.orders import list_jobs_that_end
from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.unattended.handover import start_engine
from orchestrator.engine.unattended.pipeline_stop import prepare_stop, stop_pipeline
from orchestrator.errors import ConflictError, RecordedRequestError
from orchestrator.paths import load_paths
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.preview import render_plan
from orchestrator.plan.preview_json import Stage, render_json_stages
from orchestrator.store.failures import StoreError
from orchestrator.store.lookup import find_pipeline

if TYPE_CHECKING:
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
    from orchestrator.errors import OrchError
    from orchestrator.plan.preview import PreviewFormat
    from orchestrator.store.read import Reader
    from orchestrator.store.records import PipelineRecord


class PipelineEnd(PlannedOrder):
    """The plan of a command that ends a pipeline.

    Attributes:
        record: The pipeline.
        order: The command.
        ready: What it does to clusters.
        refused: Why it is not this member's to end, or None.
    """

    def __init__(
        self,
        record: PipelineRecord,
        order: Order,
        ready: tuple[PreparedCommand, ...],
        ends: tuple[str, ...],
        refused: OrchError | None = None,
    ) -> None:
        self.record, self.order, self.ready, self.refused = record, order, ready, refused
        self.verb, self.cluster, self.notes = order.verb, order.cluster, ()
        self.ends = (f"pipeline '{record.name}' is at {record.describe_stage()}", *ends) if ends else ()

    @property
    def refusal(self) -> OrchError | None:
        return self.refused or next((refusal for one in self.ready if (refusal := one.refusal()) is not None), None)

    @property
    def expected_status(self) -> int:
        return next((status for plan in self._plans if (status := int(plan.ending.status))), 0)

    @property
    def _plans(self) -> list[Plan]:
        return [make_plan(one.desired, one.recorded, one.facts) for one in self.ready]

    def list_doubtful(self) -> list[str]:
        return []

    def render(self, form: PreviewFormat, *, verbose: bool, width: int, command: str | None) -> str:
        if form == "json":
            stages = [
                Stage(plan=plan, refusal=one.refusal()) for plan, one in zip(self._plans, self.ready, strict=True)
            ]
            return render_json_stages(stages, name=self.record.name, command=command or "")
        rendered = [render_plan(plan, form, verbose=verbose, width=width, command=command) for plan in self._plans]
        return "".join([self._describe() if form == "text" else "", *rendered])

    def render_head(self, width: int) -> str:
        return self._describe()

    def _describe(self) -> str:
        """Return what ends, and what happens to the hosts, in one line."""
        record = self.record
        own = not record.shared_cluster
        if not self.ready:
            hosts = "nothing of it runs"
        elif self.verb == "down" or own:
            hosts = f"{', '.join(one.cluster for one in self.ready)} and the program on it end"
        else:
            hosts = f"its program ends; the hosts of '{record.cluster}' stay"
        return f"pipeline '{record.name}' ends at {record.describe_stage()}: {hosts}\n"


def plan_pipeline_end(order: Order) -> PipelineEnd | None:
    """Return the plan of a command that ends a pipeline; None for one about a cluster alone."""
    with open_own_reader() as reader:
        record = find_pipeline(reader, order.cluster, _choose_job(reader, order))
        if record is None:
            return None
        ready = prepare_stop(reader, record, order.verb, force=order.force)
        now = read_record_time()
        ends = [line for one in ready for line in list_jobs_that_end(reader, one, now)]
        refused = None if order.force else _refuse_other_owner(record, reader.member)
    return PipelineEnd(record, order, ready, tuple(ends), refused)


def _refuse_other_owner(record: PipelineRecord, member: str) -> OrchError | None:
    if record.owner in ("", member):
        return None
    what = f"pipeline '{record.name}' belongs to {record.owner}"
    return ConflictError(what, f"you are {member}", "if that is meant: the same with --force")


def carry_out_pipeline_end(planned: PipelineEnd, narrator: Narrator) -> CommandResult:
    """End the pipeline, whether a process drives it or not.

    Raises:
        StoppedWatching: A person interrupted it.
        OrchError: It was not begun, or its end is not on record.
    """
    where, order = load_paths(), planned.order
    services = real_services(where)
    try:
        with open_store(where, services, order.verb, planned.record.project) as store:
            return stop_pipeline(
                store, services, planned.record, narrator, order.verb, force=order.force, abandon=order.abandon
            )
    except RecordedRequestError:
        start_engine()  # it finishes a teardown that another command keeps from the cluster
        raise
    except StoreError as failure:
        if order.verb != "down" or not planned.ready:
            raise
        ended = [end_unrecorded(one.cluster, failure, narrator) for one in planned.ready]
        raise ended[-1] from failure
    except KeyboardInterrupt:
        again = f"interrupted; the same command again ends pipeline '{planned.record.name}'"
        raise StoppedWatching([again, "  orch queue   to see the state"]) from None


def _choose_job(reader: Reader, order: Order) -> int | None:
    """Return the job that a cancel means: the newest that runs, or waits, as of a cluster without pipelines."""
    cluster = reader.cluster(order.cluster)
    if order.verb != "cancel" or order.job is not None or cluster is None:
        return order.job
    unended = [job for job in reader.jobs(cluster) if job.state != "ended"]
    chosen = [job for job in unended if job.started] or unended
    return chosen[-1].id if chosen else None
