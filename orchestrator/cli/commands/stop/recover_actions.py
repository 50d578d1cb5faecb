"""`orch recover --take-over` and `--end`: ask, act, and print the result as lines or as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.formatting import format_age, format_price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.recover import LostSlice
    from orchestrator.engine.operations.sweep import PlaceFindings
    from orchestrator.engine.operations.take_over import TakeOver
    from orchestrator.engine.services import Services
    from orchestrator.paths import Paths
    from orchestrator.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverAction:
    """What is done to the slice of a cluster.

    Attributes:
        cluster: The name that was given, of a cluster or of a slice.
        intent: Only the slice with this label; "" for any.
        take_over: Whether it is taken over; else it is ended.
        name: The name that the cluster is to have here; "" for that of its labels.
        dry_run: Whether nothing is changed.
        yes: Whether no question is asked.
        as_json: Whether the result is printed as JSON.
    """

    cluster: str
    intent: str
    take_over: bool
    name: str
    dry_run: bool
    yes: bool
    as_json: bool


def act_on_lost_slice(
    action: RecoverAction,
    store: Store,
    services: Services,
    where: Paths,
    narrator: TerminalNarrator,
    findings: Sequence[PlaceFindings],
) -> None:
    """Take a slice over or end it.

    Raises:
        OrchError: It was not done.
    """
    from orchestrator.engine.operations.recover import choose_lost_slice, end_lost_slice, find_price_per_hour
    from orchestrator.engine.operations.take_over import (
        TakeOver,
        complete_take_over,
        require_recoverable,
        take_over_slice,
    )

    given = (action.cluster, action.intent)
    if action.take_over and not action.dry_run:
        done = complete_take_over(store, services, where, narrator, findings, *given, action.name)
        if done is not None:  # what a killed command has left
            _print_take_over(action, done)
            return
    lost = choose_lost_slice(findings, *given, "--take-over" if action.take_over else "--end")
    cluster = action.name or lost.slice.cluster or lost.slice.name
    if action.take_over:
        require_recoverable(store, services, lost, cluster)
    price = find_price_per_hour(lost.slice)
    found = TakeOver(
        cluster=cluster,
        name=lost.slice.name,
        intent=lost.slice.intent,
        where=lost.slice.where,
        price_per_hour=price,
        closed="",
    )
    if not _confirm(action, lost, store.installation):
        _print_json(action, found, done=False)
    elif action.take_over:
        _print_take_over(action, take_over_slice(store, services, where, narrator, lost, action.name))
    else:
        end_lost_slice(store, services, narrator, lost)
        write_stderr(f"'{found.name}' is deleted: {lost.finding.described} does not list it any more")
        _print_json(action, found, done=True)


def _print_take_over(action: RecoverAction, done: TakeOver) -> None:
    from orchestrator.engine.operations.claim import NO_KEY_ADMITTED
    from orchestrator.engine.operations.own_key import describe_identity

    price = format_price(done.price_per_hour)
    write_stderr(f"'{done.cluster}' is on record here: {done.name} in {done.where}, {price}")
    if done.closed:
        write_stderr(f"cannot enter its hosts: {done.closed}; status, prices and `orch down {done.cluster}` work")
    else:
        write_stderr(
            f"its hosts obey this installation alone now; programs on them run on: orch exec {done.cluster} -- ps"
        )
    if done.closed == NO_KEY_ADMITTED:
        write_stderr(f"with a recovery key that they admit: {describe_identity(done.cluster)}")
    write_stderr(
        f"next: orch status {done.cluster}",
        f"or, for a run in a bucket: orch resume RUN --bucket BUCKET -c {done.cluster} --take-over",
    )
    _print_json(action, done, done=True)


def _print_json(action: RecoverAction, found: TakeOver, *, done: bool) -> None:
    """Write the result as in data/recover-action.schema.json, with -o json."""
    result = {
        "version": 1,
        "kind": "recover-action",
        "action": "take-over" if action.take_over else "end",
        "done": done,
        "cluster": found.cluster,
        "name": found.name,
        "intent": found.intent,
        "where": found.where,
        "price_per_hour": found.price_per_hour,
        "closed": found.closed or None,
    }
    if action.as_json:
        write_stdout(json.dumps(result, indent=2))


def _confirm(action: RecoverAction, lost: LostSlice, installation: str) -> bool:
    """Return whether it is to be done: not for a preview. Raises OrchError when the user declines."""
    if action.yes and not action.dry_run:
        return True
    question = "end it with its disks?"
    if action.take_over:
        question = "take it over? whoever has it on record is refused from then on"
    found = lost.slice
    made = format_age(found.created) if found.created else "at an unknown time"
    text = f"'{found.name}' ({found.intent}) in {found.where}, made {made}, is {found.state}"
    if found.installation != installation:
        text += f"; it carries the label of another installation, {found.installation}, and may be in use there"
    if action.dry_run:
        write_stderr(text, f"would ask: {question}   nothing was done")
        return False
    if not can_ask():
        raise UserError(text, "there is no terminal to ask on", "add --yes to do it")
    write_stderr(text)
    if not click.confirm(question, default=False, err=True):
        raise OrchError("you declined", "nothing was done")
    return True
