"""The plan of a command that this process prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.client.orders import PlannedOrder
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.preview import render_head, render_plan
from orchestrator.plan.preview_format import describe_idle

if TYPE_CHECKING:
    from orchestrator.engine.preparation.prepared import PreparedCommand
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


def ready_of(planned: PlannedOrder) -> PreparedCommand:
    """Return the command of a plan that this process made."""
    if not isinstance(planned, LocalPlan):
        raise TypeError("the plan is that of a service")
    return planned.ready


def _list_warnings(ready: PreparedCommand) -> list[str]:
    """Return a line for each concern that would end the training, as far as it can be predicted."""
    return [
        f"warning: on {advice['hardware']['name']} it {concern['words']}: {' '.join(concern['fix'])}".rstrip(": ")
        for advice in ready.advice
        for concern in advice["concerns"]
        if concern["fatal"]
    ]
