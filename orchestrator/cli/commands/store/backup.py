"""`orch store backup` and `orch store restore`."""

from __future__ import annotations

import os
import re
import time
from shlex import quote
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.store.held_work import describe_held_work
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, StorageError, UserError
from orchestrator.formatting import format_age
from orchestrator.messages import count_noun, to_one_line

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.store.backup_note import BackupHead


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
    write_stderr(
        f"the store is in {uri}: installation {head.installation}, event {head.seq}",
        f"to restore it: orch store restore {quote(uri)} --expect sha256:{head.sha256}",
    )


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch store restore gs://mine/orch --dry-run", "verify the newest backup; change nothing"),
        ("orch store restore gs://mine/orch", "put it in the place of a store that was lost, after a question"),
        (
            "orch store restore gs://mine/orch --expect sha256:5b0c...",
            "only the copy that `orch store backup` has printed",
        ),
        ("ORCH_STORE=postgresql://orch@db/orch orch store restore backup.db", "a file, into a team's database"),
    ],
)
@click.argument("source", metavar="URI|FILE")
@click.option("--replace", is_flag=True, help="Also where a store is that is not empty; that one is kept aside.")
@click.option("--expect", metavar="DIGEST", default="", help="Go on only if the copy has this digest.")
@click.option("--dry-run", is_flag=True, help="Verify the backup; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question: whatever the backup holds.")
def restore(source: str, replace: bool, expect: str, dry_run: bool, yes: bool) -> None:
    """Put a backup in the place of the store: of the file of this user, or of the database that ORCH_STORE names.

    Digest, audit and rows are verified first. That finds damage, not who wrote it: whoever writes to the bucket chooses
    what orch does here. So its contents are shown, and you are asked. No engine continues its jobs until you say so.
    Machines that were made after the backup may run: `orch recover`.
    """
    import tempfile
    from pathlib import Path

    from orchestrator.paths import load_paths
    from orchestrator.store.backup_file import verify_backup
    from orchestrator.store.location import describe_location, store_location
    from orchestrator.store.replacement import refuse_replacement
    from orchestrator.store.restore import fetch_backup, restore_store

    if expect and not re.fullmatch(r"sha256:[0-9a-f]{64}", expect):
        step = "copy it from orch store backup: it prints the whole command"
        raise UserError(
            "--expect: this is not the digest of a backup", "one is sha256: and 64 digits from 0 to f", step
        )
    location = store_location(os.environ, load_paths())
    with tempfile.TemporaryDirectory(prefix="orch-restore-") as scratch:
        file, head = fetch_backup(source, Path(scratch))
        found = verify_backup(file, head)
        lines = [*_describe(found, file), f"it would become {describe_location(location)}"]
        refuse_replacement(location, replace_present=replace)
        if dry_run:
            write_stdout("the backup is whole", *lines)
            return
        command = f"orch store restore {quote(source)}" + " --replace" * replace
        _require_consent(found, lines, command, expect, yes=yes)
        done = restore_store(file, found, location, replace_present=replace)
    write_stderr(
        f"the store {describe_location(location)} is restored: installation {found.installation}, event {found.seq} "
        f"(incarnation {done.incarnation})"
    )
    if done.kept:
        write_stderr(f"what was there before is kept: {done.kept}")
    write_stderr(*describe_held_work(done.held))
    write_stderr("machines that were made after the backup may run: orch recover")


def _describe(found: BackupHead, file: Path) -> list[str]:
    """Return what a verified backup holds."""
    from orchestrator.store.read import Reader

    with Reader(file) as reader:
        clusters = sum(row["gone"] is None for row in reader.rows("clusters"))
        jobs = sum(row["state"] != "ended" for row in reader.rows("jobs"))
        pipelines = sum(row["state"] == "running" for row in reader.rows("pipelines"))
    counts = f"{count_noun(clusters, 'cluster')}, {count_noun(jobs, 'job')}, {count_noun(pipelines, 'pipeline')}"
    return [
        f"the backup is of installation {to_one_line(found.installation)}, event {found.seq}",
        f"  made: {format_age(found.time)}",
        f"  open on record: {counts}",
        f"  digest: sha256:{found.sha256}",
    ]


def _require_consent(found: BackupHead, lines: list[str], command: str, expect: str, *, yes: bool) -> None:
    """Return when the user agreed to this very copy.

    Raises:
        StorageError: it has another digest than the user expects.
        UserError: no one can be asked.
        OrchError: the answer is no.
    """
    if expect:
        if expect != f"sha256:{found.sha256}":
            why = f"its digest is sha256:{found.sha256}, expected is {expect}"
            step = "find out who changed it, or which backup you mean: orch storage ls -r; nothing was done"
            raise StorageError("the backup is not the expected one", why, step)
        return
    if yes:
        return
    write_stderr(*lines)
    if not can_ask():
        why = "whoever writes to its bucket decides what orch does here, and there is no terminal to ask on"
        step = f"{command} --expect sha256:...   the digest that orch store backup printed; or --yes: whatever it holds"
        raise UserError("no one agreed to this backup", why, step)
    if not click.confirm("restore it?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done", "orch store restore --help")
