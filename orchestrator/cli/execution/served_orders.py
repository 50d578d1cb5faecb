"""Changing commands through a service (ORCH_SERVER): its plan is shown or agreed to, then ordered, and its end awaited.

The store of this computer is not opened. Questions, exit statuses and last lines are those of the same command without
a service.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.cli.execution.act import ActMode, PerformMode, PreviewMode, ask_to_spend
from orchestrator.cli.execution.missing_files_consent import agree_to_missing_files
from orchestrator.cli.execution.real_command import real_command
from orchestrator.cli.execution.transfer_consent import agree_to_lines
from orchestrator.client.http import Client, Plan, Verb
from orchestrator.client.transport import ServiceError
from orchestrator.errors import ConflictError, OrchError, UserError
from orchestrator.formatting import format_price
from orchestrator.service_address import find_server

if TYPE_CHECKING:
    from orchestrator.cli.execution.served_files import NamedFiles

_MOST_TRIES = 8  # to order, when files are missing or the plan is another one each time


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCommand:
    """A changing command, as a service is asked for it.

    Attributes:
        request: The arguments of Client.make_plan beside the verb.
        files: Those of this computer that the task needs; None for a command without a task.
        notes: Lines to print first.
        doubts: What a person at a terminal is asked about before it is ordered.
        force: Whether a cluster of another member is meant, too.
        question: What is asked before running jobs are ended.
        follows_run: Whether the command stays until its run has ended.
    """

    verb: Verb
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    files: NamedFiles | None = None
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    force: bool = False
    question: str = ""
    follows_run: bool = False


def connect() -> Client:
    """Return a client of the service that ORCH_SERVER names."""
    return Client.connect(find_server(os.environ))


def refuse_through_service(options: Mapping[str, object], step: str = "") -> None:
    """Refuse options that an order cannot have, before anything is sent.

    Args:
        options: By their names on the command line: whether each was given.
        step: What to do instead; "" for leaving it out.

    Raises:
        UserError: One was given.
    """
    for name, given in options.items():
        if given:
            server = find_server(os.environ)
            usual = f"leave {name} out, or without the service: unset ORCH_SERVER"
            raise UserError(f"{name} does not work through a service", f"ORCH_SERVER is {server}", step or usual)


def carry_out_served(client: Client, command: ServedCommand, mode: ActMode) -> int:
    """Show the plan of the service, or order it and wait for its end; return the exit status.

    Raises:
        OrchError: Nothing was ordered.
    """
    if isinstance(mode, PreviewMode):
        return _show(_make_plan(client, command), command, mode)
    from orchestrator.cli.execution.end_signals import interrupt_on_end_signals
    from orchestrator.exits import Exit

    with interrupt_on_end_signals() as received:
        status = _perform(client, command, mode)
    return 128 + received[0] if received and status == Exit.INTERRUPTED else status


def _make_plan(client: Client, command: ServedCommand) -> Plan:
    """Return the plan of the service.

    Raises:
        OrchError: The service refuses to make it, or it is for a cluster of another member.
    """
    plan = client.make_plan(command.verb, **command.request)
    document = plan.document
    if document["owner"] and not command.force:
        what = f"cluster '{document['cluster']}' belongs to {document['owner']}"
        raise ConflictError(what, "", "if that is meant: the same with --force")
    return plan


def _show(plan: Plan, command: ServedCommand, mode: PreviewMode) -> int:
    if mode.form == "sh":
        refuse_through_service({"-o sh": True}, "-v shows every request and script, -o json for programs")
    steps, done = plan.document["steps"], real_command()
    refusal = steps.get("refusal")
    write_stderr(*(f"note: {note}" for note in (*command.notes, *plan.document["notes"])))
    write_stderr(*(f"warning: {doubt}" for doubt in command.doubts))
    write_stderr(*(f"transfer {one}" for one in plan.document.get("transfers", [])))
    if mode.form == "json":
        text = json.dumps({**steps, "command": done}, indent=2) + "\n"
    else:
        text = plan.document["details" if mode.verbose else "text"]
        if refusal is None and any(step["do"] != "wait" for step in steps["steps"]):
            text += "" if mode.verbose else "Details: -v (requests, scripts), -o json (for programs)\n"
            text += f"To do it: {done or 'the same command without --dry-run'}\n"
    sys.stdout.write(command.files.show_paths(text) if command.files is not None else text)
    sys.stdout.flush()
    if refusal is None:
        return int(steps["ending"]["status"])
    if mode.form != "text":
        write_stderr("this plan would be refused:", *_read_refusal(refusal).lines())
    return int(refusal["status"])


def _read_refusal(refusal: Mapping[str, Any]) -> OrchError:
    error = OrchError(refusal["what"], refusal["why"], refusal["next_step"])
    error.code, error.exit_status = refusal["code"], int(refusal["status"])
    return error


def _perform(client: Client, command: ServedCommand, mode: PerformMode) -> int:
    from orchestrator.cli.execution.served_end import await_end

    plan = _make_plan(client, command)
    write_stderr(*(f"note: {note}" for note in (*command.notes, *plan.document["notes"])))
    agree_to_missing_files(command.doubts, agreed=mode.consent)
    _agree(plan, command, mode)
    with client.follow_events() as events:  # before it is ordered, so that nothing of it is missed
        try:
            order = _order(client, plan, command, mode)
        except KeyboardInterrupt:
            raise OrchError(
                "interrupted while it was ordered", "the service may have the order", f"{client.url}/events   shows it"
            ) from None
        return await_end(client, events, order, command, mode)


def _agree(plan: Plan, command: ServedCommand, mode: PerformMode) -> None:
    """Ask what the command asks without a service: about what it costs, and what it ends.

    Raises:
        OrchError: The command is refused, or the user does not agree.
        UserError: There is no terminal to ask on.
    """
    document = plan.document
    if (refusal := document["steps"].get("refusal")) is not None:
        raise _read_refusal(refusal)
    transfers: list[str] = document["transfers"]
    if mode.consent:
        agree_to_lines(transfers, large=True, agreed=True)
        return
    if document["ends"] and can_ask():
        write_stderr(*document["ends"])
        if not click.confirm(command.question, default=False, err=True):
            raise OrchError("you declined", "nothing was done")
    if not document["cost"]:
        agree_to_lines(transfers, large=bool(document.get("asks_transfers")), agreed=False)
        return
    moved = [f"transfer {one}" for one in transfers]
    head = document["head"]
    ask_to_spend("; ".join([document["cost"], *moved]), lambda: head + "\n".join([document["cost"], *moved]))


def _order(client: Client, plan: Plan, command: ServedCommand, mode: PerformMode) -> dict[str, Any]:
    """Order the plan, and return the order. Files are sent first where the service lacks them.

    Raises:
        OrchError: It was not ordered.
    """
    trees = command.files.trees if command.files is not None else {}
    for _ in range(_MOST_TRIES):
        try:
            return client.order(plan)
        except ServiceError as error:
            if error.code == "files-missing" and set(error.trees) & set(trees):
                from orchestrator.cli.execution.served_files import send_files

                for name in sorted(set(error.trees) & set(trees)):
                    send_files(client, name, trees[name])
            elif error.code == "plan-changed":
                plan = _agree_again(client, plan, command, mode, error)
            else:
                raise
    raise ConflictError("it was not ordered", "its plan is another one each time", "the same command again")


def _agree_again(client: Client, seen: Plan, command: ServedCommand, mode: PerformMode, changed: ServiceError) -> Plan:
    """Return the present plan, which is not the one that was agreed to.

    `--yes` agrees to it, unless it costs more.

    Raises:
        OrchError: The user does not agree.
    """
    plan = _make_plan(client, command)
    before, now = seen.document["price_per_hour"], plan.document["price_per_hour"]
    write_stderr(changed.what)
    if mode.consent and (now is None or before is None or now > before) and now != before:
        what = f"the price rose from {format_price(before)} to {format_price(now)}"
        raise ConflictError(what, "--yes agreed to the former one; nothing was done", "the same command again")
    if not mode.consent and can_ask():
        write_stderr(plan.text)
    _agree(plan, command, mode)
    return plan
