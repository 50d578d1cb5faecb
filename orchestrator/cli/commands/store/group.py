"""`orch store`: what the store is, and the commands for it as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.formatting import align_columns, format_age

if TYPE_CHECKING:
    from orchestrator.store.failures import StoreError

_HERE = "orchestrator.cli.commands.store"
_SERVERS_ALONE = "servers alone open the database, and members have a token: docs/team.md"
_REMOVED = {
    "grant": _SERVERS_ALONE,
    "serve-only": _SERVERS_ALONE,
    "password": "docs/team.md#change-the-password-while-servers-run",
    "import": "orch store backup --to URI; then ORCH_STORE=postgresql://... orch store restore URI   (docs/store.md)",
}


@click.group(
    "store",
    cls=LazyGroup,
    invoke_without_command=True,
    removed=_REMOVED,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("backup", f"{_HERE}.backup:backup", "Copy the store into a bucket."),
                LazyCommand("restore", f"{_HERE}.backup:restore", "Put a backup in the place of the store."),
                LazyCommand("upgrade", f"{_HERE}.upgrade:upgrade", "Bring the tables to the version of this orch."),
                LazyCommand("moved", f"{_HERE}.state:moved", "The store was moved here; the original is not used."),
                LazyCommand("copied", f"{_HERE}.state:copied", "The store is a copy; the original is still used."),
                LazyCommand("restored", f"{_HERE}.state:restored", "An older state of the store was put back."),
            ),
        )
    ],
    examples=[
        ("orch store", "where it is, its version, its newest event, its last backup"),
        ("orch store backup --to gs://mine/orch", "copy it now; to do so always: orch config set store.backup URI"),
        ("orch store restore gs://mine/orch", "after it was lost"),
    ],
)
@click.pass_context
def store(ctx: click.Context) -> None:
    """Show what the store is; back it up, restore and upgrade it."""
    if ctx.invoked_subcommand is None:
        rows, refusal = _describe()
        write_stdout(*align_columns(rows))
        if refusal is not None:
            write_stderr(*refusal.lines())


def _describe() -> tuple[list[tuple[str, str]], StoreError | None]:
    """Return what the store is, and why nothing can be changed in it: None where it can."""
    from orchestrator.paths import load_paths
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.other_state import find_refusal
    from orchestrator.store.read import open_reader_at
    from orchestrator.store.version import SCHEMA_VERSION

    location = store_location(os.environ, load_paths())
    rows = [("location", describe_location(location))]
    with open_reader_at(location) as reader:
        installation = reader.installation()
        if installation is None:
            return [*rows, ("state", "empty: it is made at the first launch")], None
        refusal = find_refusal(reader, location)
        backup = reader.last_backup()
        known = f" (this orch writes {SCHEMA_VERSION})" if reader.version != SCHEMA_VERSION else ""
        head = reader.head()
        rows += [
            ("version", f"{reader.version}{known}"),
            ("installation", installation),
            ("incarnation", str(reader.incarnation)),
            ("newest event", f"{head.seq} {head.hash[:16]}"),
            ("last backup", f"{format_age(backup.at)}, event {backup.seq}, in {backup.uri}" if backup else "none"),
        ]
        rows += [("state", "only read, not changed")] if refusal is not None else []
    return rows, refusal
