"""`orch store moved`, `copied` and `restored`: what a person says of a store that lies in another place or state."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.store.held_work import describe_held_work
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.store.state_changes import OpenRecords, StateChanges

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
_yes = click.option("-y", "--yes", is_flag=True, help="Skip the question.")


@click.command(
    cls=OrchCommand,
    examples=[("orch store moved", "the state folder lies on a new computer, and the old one is not used any more")],
)
@_dry_run
@_yes
def moved(dry_run: bool, yes: bool) -> None:
    """Open the store where it lies now: it was moved, and the original is not used any more.

    Two copies of one store would drive the same machines. If the original is still used: `orch store copied`.
    """
    _apply("continues here, with what is open; the original must not be used any more", _move, dry_run=dry_run, yes=yes)


@click.command(
    cls=OrchCommand,
    examples=[("orch store copied", "this is a copy of a home folder that is still in use")],
)
@_dry_run
@_yes
def copied(dry_run: bool, yes: bool) -> None:
    """Make this copy a separate store: the original is still used, and keeps the machines.

    What is open on record is closed here. No machine is ended.
    """
    _apply("becomes a separate one: what is open is closed here, and left to the original", _copy,
           dry_run=dry_run, yes=yes)  # fmt: skip


@click.command(
    cls=OrchCommand,
    examples=[("orch store restored", "orch.db is a backup, or the database was set back to an earlier time")],
)
@_dry_run
@_yes
def restored(dry_run: bool, yes: bool) -> None:
    """Open the store again after an older state was put back.

    No engine continues its jobs and pipelines until you say so: the commands are printed. Machines that were made later
    may run without a record: `orch recover` finds them.
    """
    _apply(
        "continues from this older state; no engine continues its jobs by itself", _restore, dry_run=dry_run, yes=yes
    )


def _apply(what: str, change: Callable[[StateChanges], str], *, dry_run: bool, yes: bool) -> None:
    from orchestrator.paths import load_paths
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.read import open_reader_at
    from orchestrator.store.state_changes import StateChanges

    location = store_location(os.environ, load_paths())
    with open_reader_at(location) as reader:
        if reader.installation() is None:
            raise UserError(f"there is no store {describe_location(location)}", "", "orch store   shows where it is")
    with StateChanges(location, accept_other_state=True) as store:
        opened = store.open_records()
        lines = [f"the store {describe_location(location)} of installation {store.installation} {what}",
                 f"open on record: {_describe(opened)}"]  # fmt: skip
        if dry_run:
            write_stdout(*lines)
            return
        if not yes:
            _ask(lines)
        write_stderr(change(store))


def _ask(lines: list[str]) -> None:
    if not can_ask():
        raise UserError(lines[0], "there is no terminal to ask on", "add --yes to agree, or --dry-run to see more")
    write_stderr(*lines)
    if not click.confirm("is that so?", default=False, err=True):
        raise OrchError("you declined", "nothing was changed", "orch store --help")


def _describe(opened: OpenRecords) -> str:
    names = f" ({', '.join(opened.clusters[:8])})" if opened.clusters else ""
    clusters, jobs = count_noun(len(opened.clusters), "cluster"), count_noun(opened.jobs, "job")
    return f"{clusters}{names}, {jobs}, {count_noun(opened.pipelines, 'pipeline')}"


def _move(store: StateChanges) -> str:
    store.accept_move()
    return f"the store is in use here (incarnation {store.incarnation})"


def _copy(store: StateChanges) -> str:
    original = store.installation
    closed = store.accept_copy()
    return f"this store is installation {store.installation} now; left to {original}: {_describe(closed)}"


def _restore(store: StateChanges) -> str:
    held = store.accept_restored_state()
    lines = [
        f"the store is in use again (incarnation {store.incarnation})",
        *describe_held_work(held),
        "machines that were made after this state may run: orch recover",
    ]
    return "\n".join(lines)
