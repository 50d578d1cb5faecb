"""`orch store upgrade`: bring the tables to the version of this orch."""

from __future__ import annotations

import os
import time

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch store upgrade --dry-run", "the versions, and which orchs can use the store afterwards"),
        ("orch store upgrade", ""),
    ],
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
def upgrade(dry_run: bool) -> None:
    """Bring the tables of the store to the version of this orch, in one transaction.

    A team's database is upgraded by this command alone. A person's file is upgraded by the first command that changes
    it, after a copy to orch.db.bak.
    """
    from orchestrator.paths import load_paths
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.read import open_reader_at
    from orchestrator.store.upgrade import upgrade_store
    from orchestrator.store.version import OLDEST_READER, OLDEST_WRITER, SCHEMA_VERSION

    location = store_location(os.environ, load_paths())
    place = describe_location(location)
    with open_reader_at(location) as reader:
        if reader.installation() is None:
            write_stdout(f"there is no store {place} yet: it is made with version {SCHEMA_VERSION}")
            return
        before = reader.version
    if before >= SCHEMA_VERSION:
        write_stdout(f"the store {place} has version {before}: nothing is to be done")
        return
    after = (
        f"afterwards orchs of version {OLDEST_READER} and newer can read it, "
        f"those of version {OLDEST_WRITER} and newer can change it"
    )
    if dry_run:
        write_stdout(f"would upgrade the store {place} from version {before} to {SCHEMA_VERSION}", after)
        return
    upgrade_store(location, time.time())
    write_stderr(f"the store {place} has version {SCHEMA_VERSION} now; it had {before}", after)
