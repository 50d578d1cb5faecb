"""Show the plan of a changing command, or ask and carry it out: by this process, or by a service."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.execution.missing_files_consent import agree_to_missing_files
from orchestrator.cli.execution.real_command import real_command
from orchestrator.cli.execution.spending_consent import agree_to_costs, preview_width
from orchestrator.cli.failures import print_error
from orchestrator.client.orders import PlanChangedError, StoppedWatching
from orchestrator.errors import ConflictError, NotFoundError, OrchError
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.client.orders import OrderCalls, PlannedOrder
    from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
    from orchestrator.plan.preview import PreviewFormat

_MOST_TRIES = 8  # to carry out a plan that is another one each time


@dataclass(frozen=True, slots=True)
class PreviewMode:
    """Print the plan to stdout.

    Attributes:
        form: Text, JSON or a shell script.
        verbose: Include every request and script.
    """

    form: PreviewFormat
    verbose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformMode:
    """Perform the plan.

    Attributes:
        consent: Spend money without asking.
        follow: Stay until the program has ended, not only until it runs.
        as_json: Write only the result to stdout, as JSON.
        prefix: Begin each line of the program's output with its host.
        raw: Let hosts send control characters to a terminal.
    """

    consent: bool = False
    follow: bool = True
    as_json: bool = False
    prefix: bool = True
    raw: bool = False


ActMode: TypeAlias = PreviewMode | PerformMode


def carry_out(ready: PreparedCommand, mode: ActMode) -> int:
    """Show the plan of a command of this process or perform it, and return the exit status.

    Raises:
        OrchError: It was not begun, or the user detached from it.
    """
    from orchestrator.client.local_orders import LocalOrders
    from orchestrator.client.local_plan import LocalPlan

    return carry_out_order(LocalOrders(), LocalPlan(ready), mode)


def carry_out_order(orders: OrderCalls, planned: PlannedOrder, mode: ActMode) -> int:
    """Show a plan or perform it, and return the exit status.

    Args:
        orders: Performs it.
        planned: The plan.
        mode: Whether to show it or to perform it.

    Raises:
        OrchError: It was not begun, or the user detached from it.
    """
    match mode:
        case PreviewMode():
            return show(planned, mode)
        case PerformMode():
            return perform(orders, planned, mode)


def show(planned: PlannedOrder, mode: PreviewMode) -> int:
    """Print a plan to stdout and notes about it to stderr.

    Returns:
        The exit status that the command itself would end with: not 0 for a plan that it would refuse.
    """
    write_stderr(*planned.list_doubtful())
    width = preview_width(sys.stdout)
    sys.stdout.write(planned.render(mode.form, verbose=mode.verbose, width=width, command=real_command()))
    sys.stdout.flush()
    return _report_refusal(planned.refusal, planned.expected_status, mode)


def show_stages_as_json(name: str, stages: Sequence[PreparedCommand]) -> int:
    """Print the plans of a pipeline's stages as one JSON document, and notes about them to stderr.

    Returns:
        The exit status of the first stage whose plan ends with another one than 0.
    """
    from orchestrator.client.local_plan import make_preview_plan
    from orchestrator.plan.preview_json import Stage, render_json_stages

    previews = [Stage(plan=make_preview_plan(ready), advice=ready.advice, refusal=ready.refusal()) for ready in stages]
    write_stderr(*(f"note: {note}" for ready in stages for note in ready.notes))
    write_stderr(*(f"warning: {doubt}" for ready in stages for doubt in ready.doubts))
    sys.stdout.write(render_json_stages(previews, name=name, command=real_command()))
    sys.stdout.flush()
    statuses = [_report_refusal(one.refusal, int(one.plan.ending.status), PreviewMode("json")) for one in previews]
    return next((status for status in statuses if status), int(Exit.OK))


def _report_refusal(refusal: OrchError | None, expected: int, mode: PreviewMode) -> int:
    """Return the exit status that the command would end with; the text form already shows a refusal."""
    if refusal is None:
        return expected
    if mode.form != "text":
        write_stderr("this plan would be refused:", *refusal.lines())
    return int(refusal.exit_status)


def perform(orders: OrderCalls, planned: PlannedOrder, mode: PerformMode) -> int:
    """Perform a plan, draw what happens, and return the exit status.

    SIGTERM and SIGHUP end it as Ctrl-C does, with the exit status of the signal.
    """
    from orchestrator.cli.execution.end_signals import interrupt_on_end_signals

    with interrupt_on_end_signals() as received:
        try:
            status = _perform(orders, planned, mode)
        except OrchError as error:
            if not received:
                raise
            status = print_error(error, debug=current_session().debug)
    return 128 + received[0] if received and status == Exit.INTERRUPTED else status


def _perform(orders: OrderCalls, planned: PlannedOrder, mode: PerformMode) -> int:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import print_ending

    if (refusal := planned.refusal) is not None:
        raise refusal
    write_stderr(*planned.warnings)
    agree_to_missing_files(planned.doubts, agreed=mode.consent)
    planned = agree_to_costs(orders, planned, agreed=mode.consent)
    try:
        with TerminalNarrator(sys.stderr if mode.as_json else sys.stdout, prefix=mode.prefix, raw=mode.raw) as narrator:
            for note in planned.notes:
                narrator.note(note)
            ending = _carry_out_agreed(orders, planned, narrator, mode)
    except OrchError as error:
        if not mode.as_json:
            raise
        _print_json(planned, _ending_from_error(error))
        return print_error(error, debug=current_session().debug)
    except StoppedWatching as stopped:
        write_stderr(*stopped.lines)
        return Exit.INTERRUPTED
    if mode.as_json:
        _print_json(planned, ending)
    print_ending(ending)
    # A program that was left to an engine may need its machines; one that did not start leaves them to the user.
    if (mode.follow or ending.status) and planned.has_run:
        write_stderr(*_list_kept_machines(planned))
    return ending.status


def _carry_out_agreed(
    orders: OrderCalls, planned: PlannedOrder, narrator: TerminalNarrator, mode: PerformMode
) -> CommandResult:
    """Carry out a plan, or the one that took its place meanwhile where the user agrees to that, too."""
    for _ in range(_MOST_TRIES):
        try:
            return orders.carry_out(planned, narrator, follow=mode.follow)
        except PlanChangedError as changed:
            narrator.note(changed.what)
            planned = changed.planned
            if mode.consent and changed.price_rise:
                why = "--yes agreed to the former one; nothing was done"
                raise ConflictError(changed.price_rise, why, changed.next_step) from None
            if (refusal := planned.refusal) is not None:
                raise refusal from None
            if not mode.consent and can_ask():
                write_stderr(planned.render("text", verbose=False, width=preview_width(sys.stderr), command=None))
            planned = agree_to_costs(orders, planned, agreed=mode.consent)
    raise ConflictError("it was not ordered", "its plan is another one each time", "the same command again")


def _list_kept_machines(planned: PlannedOrder) -> list[str]:
    """Return lines about the machines that exist, and maybe cost money, after a command; none when there are none."""
    from orchestrator.client.choose import open_documents
    from orchestrator.client.kept_machines import describe_kept_machines
    from orchestrator.documents.queries import ClustersQuery

    try:
        with open_documents() as documents:
            return describe_kept_machines(documents.read_status(ClustersQuery(cluster=planned.cluster)), planned.idle)
    except OrchError as error:
        return [] if error.code == NotFoundError.code else [f"whether machines keep running is not known: {error.what}"]


def _ending_from_error(error: OrchError) -> CommandResult:
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.plan.steps import GiveUp

    return CommandResult(
        step=GiveUp(
            code=error.code,
            status=int(error.exit_status),
            what=error.what,
            why=error.why,
            next_step=NextStep.parse(error.next_step),
        )
    )


def _print_json(planned: PlannedOrder, ending: CommandResult) -> None:
    import json

    from orchestrator.cli.drawing.outcomes import ending_as_json

    write_stdout(json.dumps(ending_as_json(planned.cluster, planned.verb, ending), indent=2))
