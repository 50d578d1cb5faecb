"""`orch store backup` and `orch store restore`."""

from __future__ import annotations

import os
import time

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.store.held_work import describe_held_work
from orchestrator.cli.drawing.formatting import format_age
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import UserError


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch store backup", "into the bucket that `orch config set store.backup URI` has named"),
        ("orch store backup --to s3://mine/orch", "the newest ten are kept there"),
    ],
)
@click.option("--to", "uri", default="", metavar="URI", help="The bucket; that of the configuration by default.")
def backup(uri: str) -> None:
    """Copy the store into a bucket, with its newest event beside it.

    The same format serves a person's file and a team's database. It holds no secrets and no keys, but the texts of
    task files. With `store.backup` in the configuration, commands and engines do this by themselves.
    """
    from orchestrator.paths import load_paths
    from orchestrator.storage.bucket import Bucket
    from orchestrator.store.backup import back_up
    from orchestrator.store.location import store_location
    from orchestrator.task.config import load_config

    uri = uri or load_config(os.environ).text("store.backup")
    if not uri:
        raise UserError("no bucket is named", "", "orch store backup --to URI   or: orch config set store.backup URI")
    head = back_up(store_location(os.environ, load_paths()), Bucket.open(uri), time.time())
    write_stderr(f"the store is in {uri}: installation {head.installation}, event {head.seq}")


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch store restore gs://mine/orch --dry-run", "verify the newest backup; change nothing"),
        ("orch store restore gs://mine/orch", "put it in the place of a store that was lost"),
        ("ORCH_STORE=postgresql://orch@db/orch orch store restore backup.db", "a file, into a team's database"),
    ],
)
@click.argument("source", metavar="URI|FILE")
@click.option("--replace", is_flag=True, help="Also where a store is that is not empty; that one is kept aside.")
@click.option("--dry-run", is_flag=True, help="Verify the backup; change nothing.")
def restore(source: str, replace: bool, dry_run: bool) -> None:
    """Put a backup in the place of the store: of the file of this user, or of the database that ORCH_STORE names.

    Digest, audit and rows are verified first. Machines that were made after the backup may run: `orch recover`.
    """
    import tempfile
    from pathlib import Path

    from orchestrator.paths import load_paths
    from orchestrator.store.backup_file import verify_backup
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.restore import fetch_backup, restore_store

    location = store_location(os.environ, load_paths())
    with tempfile.TemporaryDirectory(prefix="orch-restore-") as scratch:
        file, head = fetch_backup(source, Path(scratch))
        found = verify_backup(file, head)
        described = f"installation {found.installation}, event {found.seq}, made {format_age(found.time)}"
        if dry_run:
            write_stdout(f"the backup is whole: {described}", f"it would become {describe_location(location)}")
            return
        done = restore_store(file, head, location, replace_present=replace)
    write_stderr(f"the store {describe_location(location)} is restored: {described} (incarnation {done.incarnation})")
    if done.kept:
        write_stderr(f"what was there before is kept: {done.kept}")
    write_stderr(*describe_held_work(done.held))
    write_stderr("machines that were made after the backup may run: orch recover")
