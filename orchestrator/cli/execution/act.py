"""Carry out what a changing command prepared: show the plan, or ask and perform it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO, TypeAlias

import click

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import can_ask, inspect_terminal, write_stderr, write_stdout
from orchestrator.cli.execution.missing_files_consent import agree_to_missing_files
from orchestrator.cli.execution.real_command import real_command
from orchestrator.cli.failures import print_error
from orchestrator.errors import OrchError, RecordedRequestError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_rate
from orchestrator.next_step import NextStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.engine.operations.transfers import Transfer
    from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
    from orchestrator.plan.dry_run import Plan
    from orchestrator.plan.preview import PreviewFormat
    from orchestrator.slices import Candidate
    from orchestrator.store.failures import StoreError


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
WithoutStore: TypeAlias = "Callable[[str, StoreError], OrchError]"  # of a cluster's name


def carry_out(ready: PreparedCommand, mode: ActMode, without_store: WithoutStore | None = None) -> int:
    """Show the plan or perform it, and return the exit status.

    Args:
        ready: The command.
        mode: Whether to show it or to perform it.
        without_store: Does what can be done when the store cannot be written, and returns what is left to do.

    Raises:
        OrchError: It was not begun, or the user detached from it.
    """
    match mode:
        case PreviewMode():
            return show(ready, mode)
        case PerformMode():
            return perform(ready, mode, without_store)


def show(ready: PreparedCommand, mode: PreviewMode) -> int:
    """Print the plan to stdout and notes about it to stderr.

    Returns:
        The exit status that the command itself would end with: not 0 for a plan that it would refuse.
    """
    from orchestrator.plan.preview import render_plan

    write_stderr(*(f"note: {note}" for note in ready.notes), *(f"warning: {doubt}" for doubt in ready.doubts))
    plan, refusal = make_preview_plan(ready), ready.refusal()
    text = render_plan(
        plan,
        mode.form,
        verbose=mode.verbose,
        width=preview_width(sys.stdout),
        command=real_command(),
        advice=ready.advice,
        refusal=refusal,
    )
    sys.stdout.write(text)
    sys.stdout.flush()
    return _report_refusal(plan, refusal, mode)


def show_stages_as_json(name: str, stages: Sequence[PreparedCommand]) -> int:
    """Print the plans of a pipeline's stages as one JSON document, and notes about them to stderr.

    Returns:
        The exit status of the first stage whose plan ends with another one than 0.
    """
    from orchestrator.plan.preview_json import Stage, render_json_stages

    previews = [Stage(plan=make_preview_plan(ready), advice=ready.advice, refusal=ready.refusal()) for ready in stages]
    write_stderr(*(f"note: {note}" for ready in stages for note in ready.notes))
    write_stderr(*(f"warning: {doubt}" for ready in stages for doubt in ready.doubts))
    sys.stdout.write(render_json_stages(previews, name=name, command=real_command()))
    sys.stdout.flush()
    statuses = [_report_refusal(one.plan, one.refusal, PreviewMode("json")) for one in previews]
    return next((status for status in statuses if status), int(Exit.OK))


def _report_refusal(plan: Plan, refusal: OrchError | None, mode: PreviewMode) -> int:
    """Return the exit status that the command would end with; the text form already shows a refusal."""
    if refusal is None:
        return int(plan.ending.status)
    if mode.form != "text":
        write_stderr("this plan would be refused:", *refusal.lines())
    return int(refusal.exit_status)


def preview_width(stream: TextIO) -> int:
    """Return the columns of a preview: those of the terminal, or COLUMNS, between 80 and 100."""
    return min(100, max(80, inspect_terminal(stream).width or get_terminal_size().columns))


def perform(ready: PreparedCommand, mode: PerformMode, without_store: WithoutStore | None = None) -> int:
    """Perform the plan, draw what happens, and return the exit status.

    SIGTERM and SIGHUP end it as Ctrl-C does, with the exit status of the signal.
    """
    from orchestrator.cli.execution.end_signals import interrupt_on_end_signals

    with interrupt_on_end_signals() as received:
        try:
            status = _perform(ready, mode, without_store)
        except OrchError as error:
            if not received:
                raise
            status = print_error(error, debug=current_session().debug)
    return 128 + received[0] if received and status == Exit.INTERRUPTED else status


def _perform(ready: PreparedCommand, mode: PerformMode, without_store: WithoutStore | None) -> int:
    from orchestrator.cli.drawing.outcomes import print_ending
    from orchestrator.engine.operations.transfers import learn_run_buckets
    from orchestrator.engine.state.kept_files import drop_stale_trees
    from orchestrator.engine.state.store_backup import back_up_if_due
    from orchestrator.paths import load_paths
    from orchestrator.store.failures import StoreError

    ready.raise_refusal()
    write_stderr(*_warnings(ready))
    agree_to_missing_files(ready.doubts, agreed=mode.consent)
    ready = learn_run_buckets(ready)
    agree_to_costs(ready, agreed=mode.consent)
    try:
        ending = _drive(ready, mode) if mode.follow else _leave_to_engine(ready, mode)
    except OrchError as failure:
        error = failure
        if isinstance(failure, RecordedRequestError):
            _start_engine()
        if without_store is not None and isinstance(failure, StoreError):
            error = without_store(ready.cluster, failure)
        if not mode.as_json:
            raise error from failure
        _print_json(ready, _ending_from_error(error))
        return print_error(error, debug=current_session().debug)
    except KeyboardInterrupt:
        write_stderr(*_after_interrupt(ready))
        return Exit.INTERRUPTED
    back_up_if_due(load_paths(), lambda note: write_stderr(f"note: {note}"))
    drop_stale_trees()
    if mode.as_json:
        _print_json(ready, ending)
    print_ending(ending)
    # A program that was left to an engine may need its machines; one that did not start leaves them to the user.
    if (mode.follow or ending.status) and ready.job is not None and ready.job.kind != "exec":
        write_stderr(*_kept_machines(ready))
    return ending.status


def _start_engine() -> None:
    """Start the engine that carries out what is on record, unless one works."""
    from orchestrator.engine.unattended.handover import start_engine

    start_engine()


def _warnings(ready: PreparedCommand) -> list[str]:
    """Return a line for each concern that would end the training, as far as it can be predicted."""
    return [
        f"warning: on {advice['hardware']['name']} it {concern['words']}: {' '.join(concern['fix'])}".rstrip(": ")
        for advice in ready.advice
        for concern in advice["concerns"]
        if concern["fatal"]
    ]


def _drive(ready: PreparedCommand, mode: PerformMode) -> CommandResult:
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.loop.drive import drive_cluster
    from orchestrator.engine.operations.own_key import refuse_exec_without_key

    out = sys.stderr if mode.as_json else sys.stdout
    with TerminalNarrator(out, prefix=mode.prefix, raw=mode.raw) as narrator:
        for note in ready.notes:
            narrator.note(note)
        refuse_exec_without_key(ready, narrator)
        return drive_cluster(ready, narrator, follow=mode.follow)


def _leave_to_engine(ready: PreparedCommand, mode: PerformMode) -> CommandResult:
    """Return when the program runs or is queued (`--detach`); an unattended engine continues."""
    from orchestrator.engine.unattended import handover

    if ready.job is None or ready.job.kind == "exec":
        return _drive(ready, mode)
    ready = handover.prepare_for_engine(ready, write_stderr)
    same = None if ready.continued_uid else handover.find_handed_over_job(ready)
    other = None if same or ready.continued_uid else handover.find_blocking_job(ready)
    if same is not None:
        ending = same
    elif other is not None:
        write_stderr(f"queued behind job {other.id} on '{ready.cluster}'")
        ending = handover.enqueue_job(ready, write_stderr)
    else:
        ending = _drive(ready, mode)
    if ending.status == 0:
        handover.start_engine(handover.secret_values(ready))
    return ending


def _after_interrupt(ready: PreparedCommand) -> list[str]:
    """Return what continues without us, and how to come back to it."""
    from orchestrator.client.local import open_own_reader

    cluster = ready.cluster
    with open_own_reader() as store:
        record = store.cluster(cluster)
        running = [job for job in store.jobs(record) if job.state == "running"] if record is not None else []
    kept = _kept_machines(ready)
    if running:
        message = f"stopped watching; job {running[-1].id} continues to run"
        return [message, f"  orch watch {cluster}   to watch again", f"  orch cancel {cluster}   to end it", *kept]
    message = "interrupted; the state is recorded, and the same command again resumes from it"
    return [message, f"  orch status {cluster}   to see the state", *(kept or [f"  orch down {cluster}   to end it"])]


def _kept_machines(ready: PreparedCommand) -> list[str]:
    """Return lines about the machines that exist, and maybe cost money, after a command; none when there are none."""
    from orchestrator.client.local import open_own_reader
    from orchestrator.plan.desired import Run
    from orchestrator.plan.observed import IntentState
    from orchestrator.plan.preview_format import describe_idle
    from orchestrator.plan.ranks import count_hosts
    from orchestrator.slices import SliceState

    with open_own_reader() as store:
        record = store.cluster(ready.cluster)
        intents = store.intents(record) if record is not None else ()
        if record is None or record.last_state == SliceState.STOPPED:
            return []
    made = [intent.candidate for intent in intents if intent.state is IntentState.ACCEPTED]
    if not made:
        return []
    hosts, price = sum(one.hosts for one in made), made[-1].price_per_hour
    cost = f" at {format_rate(price)}" if price else ""
    verb = "keeps" if hosts == 1 else "keep"
    idle = describe_idle(ready.desired) if isinstance(ready.desired, Run) else ""
    return [
        f"{count_hosts(hosts)} {verb} running{cost} until: orch down {ready.cluster}",
        *([f"  {idle}"] if idle else []),
    ]


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


def make_preview_plan(ready: PreparedCommand) -> Plan:
    """Return the plan of what would be done, if each step succeeded."""
    from orchestrator.plan.dry_run import make_plan

    return make_plan(ready.desired, ready.recorded, ready.facts)


def _print_json(ready: PreparedCommand, ending: CommandResult) -> None:
    import json

    from orchestrator.cli.drawing.outcomes import ending_as_json

    write_stdout(json.dumps(ending_as_json(ready.cluster, ready.verb, ending), indent=2))


def agree_to_costs(ready: PreparedCommand, *, agreed: bool) -> None:
    """Show what a command transfers, and ask before that or machines cost money; `agreed` answers.

    Raises as ask_before_spending does.
    """
    from orchestrator.cli.execution.transfer_consent import agree_to_transfers
    from orchestrator.engine.operations.transfers import list_launch_transfers

    transfers = list_launch_transfers(ready)
    if agreed:
        agree_to_transfers(transfers, agreed=True)
    else:
        ask_before_spending(ready, transfers)


def ask_before_spending(ready: PreparedCommand, transfers: Sequence[Transfer] = ()) -> None:
    """Ask before money is spent, below the head of the plan; return where nothing is spent or the user agrees.

    Args:
        ready: What will be done.
        transfers: Data that leaves its region for it.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    from orchestrator.cli.execution.transfer_consent import agree_to_transfers
    from orchestrator.engine.preparation.spending import describe_cost, list_machines_to_pay

    rented = list_machines_to_pay(ready)
    if not rented:
        agree_to_transfers(transfers, agreed=False)
        return
    moved = [f"transfer {one}" for one in transfers]
    cost = "; ".join([describe_cost(rented), *moved])
    ask_to_spend(cost, lambda: "\n".join([_describe_spending(ready, rented), *moved]))


def ask_to_spend(cost: str, describe: Callable[[], str]) -> None:
    """Ask before money is spent; return where the user agrees.

    Args:
        cost: What it costs, in one line.
        describe: Makes what is shown above the question.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user does not agree.
    """
    if not can_ask():
        raise UserError(
            "this spends money, and there is no terminal to ask on",
            cost,
            "add --yes to agree, or --dry-run to see what would be done",
        )
    write_stderr(describe())
    if not click.confirm("spend this?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")


def _describe_spending(ready: PreparedCommand, rented: tuple[Candidate, ...]) -> str:
    """Return the head of the plan; for machines that are started again, which it does not name, their price."""
    from orchestrator.engine.preparation.spending import describe_cost
    from orchestrator.plan.preview import render_head

    head = render_head(make_preview_plan(ready), width=preview_width(sys.stderr), advice=ready.advice)
    return head + describe_cost(rented)
