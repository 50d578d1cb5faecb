"""`orch store import`: bring a person's state folder into the team's store."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.formatting import format_duration

if TYPE_CHECKING:
    from orchestrator.store.connection import Database

_PAUSE = 2.0


@click.command(
    "import",
    cls=OrchCommand,
    examples=[
        ("export ORCH_STORE=postgresql://orch@db/orch", "the team's store, into which it goes"),
        ("orch store import ~/.local/state/orch --dry-run", "what would come, and under which names"),
        ("orch store import ~/.local/state/orch", "the folder is sealed first: no orch changes it any more"),
        ("ORCH_HOME=/var/lib/orch orch store import /home/ann/.local/state/orch", "into the file of a service"),
    ],
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--wait", is_flag=True, help="Wait until no orch works with the folder any more.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
def import_folder(folder: Path, wait: bool, dry_run: bool) -> None:
    """Bring the records of a person's state folder into the store that ORCH_STORE names, or into this user's own.

    On PostgreSQL, only the login that owns the tables may do it. Clusters that exist continue, with their machines,
    waiting blocks and unfinished `down`. A name that is taken gets the suffix -2. Private keys stay in the folder, and
    its own commands end none of the machines any more. Repeat the command if it was interrupted.
    """
    from orchestrator.paths import load_paths
    from orchestrator.store.import_changes import ImportChanges, open_source, read_source, refuse_import
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.read import open_reader_at
    from orchestrator.store.sealing import mark_moved

    where = load_paths()
    target = store_location(os.environ, where)
    file, place = folder / "orch.db", describe_location(target)
    if not file.is_file():
        raise NotFoundError(
            f"there is no store in {folder}", "", "name the folder with orch.db, such as $ORCH_HOME/state"
        )
    refuse_import(file, target, where.state, wait=wait)
    if dry_run:
        with open_reader_at(file) as reader:
            names = ", ".join(cluster.name for cluster in reader.clusters()) or "none"
            write_stdout(f"would import installation {reader.installation()} from {file} into {place}",
                         f"clusters that exist: {names}")  # fmt: skip
        return
    source = open_source(file, time.time())
    try:
        with ImportChanges(target, doing="orch store import") as store:
            store.refuse_same_slices(read_source(source))
            _seal(source, place, wait=wait)
            done = store.import_records(read_source(source))
        mark_moved(source)
    finally:
        source.close()
    renamed = [f"'{old}' is '{new}' here" for old, new in done.names.items() if old != new]
    write_stderr(f"{done.rows} records of {file} are in {place} now", *renamed)


def _seal(source: Database, place: str, *, wait: bool) -> None:
    """Seal the folder, after the orch that works with it where `wait` says so; a long wait is reported again."""
    from orchestrator.cli.drawing.narrator import QUIET_SECONDS
    from orchestrator.store.sealing import seal

    began, due = time.monotonic(), 0.0
    while True:
        try:
            return seal(source, place)
        except ConflictError as error:
            if not wait:
                raise
            waited = time.monotonic() - began
            if waited >= due:
                due = waited + QUIET_SECONDS
                write_stderr(f"waiting for {format_duration(waited)} until no orch works with the folder: {error.why}")
            time.sleep(_PAUSE)
