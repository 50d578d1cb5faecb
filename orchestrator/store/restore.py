"""The restoration of a backup: verified first, then put in the place of a store that is empty, or kept aside."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

from orchestrator.errors import NotFoundError
from orchestrator.private_files import make_private_folder
from orchestrator.storage.bucket import Bucket
from orchestrator.store.backup import HEAD, find_backup_folder, read_backup_head
from orchestrator.store.backup_file import copy_rows, remove_run_keys, verify_backup
from orchestrator.store.backup_note import BackupHead
from orchestrator.store.connection import Database
from orchestrator.store.incarnation import keep_witness
from orchestrator.store.location import Location
from orchestrator.store.meta_rows import TIE, write_meta
from orchestrator.store.migrations import create_or_migrate, keep_events, lock_tables
from orchestrator.store.other_state import Tie, read_witnesses
from orchestrator.store.replacement import drop_or_move_tables, refuse_present, refuse_replacement, replace_file
from orchestrator.store.schema import metadata
from orchestrator.store.state_changes import HeldWork, StateChanges

_UNFINISHED = Tie(system="-", database="-")  # of no database: a restoration that was killed is completed by a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A store that was restored: the head of its backup, its incarnation, its work, and where the old one is kept."""

    head: BackupHead
    incarnation: int
    held: HeldWork
    kept: str


def fetch_backup(source: str, folder: Path) -> tuple[Path, BackupHead | None]:
    """Download the newest backup of a bucket, or take a file, and return it with the head that lies beside it.

    Args:
        source: URI of a bucket or of one backup in it, or the path of a file.
        folder: where a downloaded file goes.
    """
    if "://" not in source:
        file, beside = Path(source), Path(source).with_name(HEAD)
        if not file.is_file():
            raise NotFoundError(f"there is no file {source}", "", "orch store restore URI   takes it from a bucket")
        head = BackupHead.parse(beside.read_bytes(), str(beside)) if beside.is_file() else None
        return file, head if head is not None and head.file == file.name else None
    uri, _, name = source.rpartition("/") if source.endswith(".db") else (source, "", "")
    bucket = Bucket.open(uri)
    at = "" if name else find_backup_folder(bucket)
    if at:
        bucket = Bucket.open(bucket.uri_of(at))
    newest, _ = read_backup_head(bucket, "") if not name else (None, None)
    target = folder / "backup.db"
    bucket.download_file(name or (newest.file if newest is not None else ""), target)
    return target, newest


def restore_store(
    source: Path, head: BackupHead | None, location: Location, now: Callable[[], float] = time.time, *,
    replace_present: bool = False,
) -> Restored:  # fmt: skip
    """Verify a backup and put it in the place of the store, as another incarnation.

    Args:
        source: the backup; it is not changed.
        head: what lies beside it.
        location: of the store.
        now: gives the time that is written.
        replace_present: replace a store that is not empty, which is kept aside.

    Raises:
        StorageError: the backup is damaged.
        ConflictError: a store is there that is not empty, or an orch works with it.
    """
    refuse_replacement(location, replace_present=replace_present)
    with tempfile.TemporaryDirectory(prefix="orch-restore-") as scratch:
        copy = Path(scratch, "store.db")
        copyfile(source, copy)
        found = verify_backup(copy, head)
        remove_run_keys(copy)
        work = _Work(copy, found, location, now, replace_present)
        done = work.into_file(location) if isinstance(location, Path) else work.into_server(location)
    with closing(Database(location)) as database:  # from now on a store of the incarnation before is refused here
        keep_witness(database, found.installation)
    return done


@dataclass(frozen=True, slots=True)
class _Work:
    copy: Path
    head: BackupHead
    location: Location
    now: Callable[[], float]
    replace_present: bool

    def into_file(self, location: Path) -> Restored:
        make_private_folder(location.parent)
        staged = location.with_name(f"{location.name}.restoring")
        copyfile(self.copy, staged)
        staged.chmod(0o600)
        incarnation, held = self._accept(staged)  # the tie is to this file, which a rename keeps
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        kept = replace_file(location, staged, self.now())
        return Restored(head=self.head, incarnation=incarnation, held=held, kept=kept)

    def into_server(self, location: str) -> Restored:
        upgraded = Database(self.copy)
        target = Database(location)
        try:
            create_or_migrate(upgraded, self.now())
            with upgraded.reading() as rows, target.writing() as tx:
                lock_tables(tx)
                refuse_present(tx, target, replace_present=self.replace_present)
                kept = drop_or_move_tables(tx, location, self.now())
                metadata.create_all(tx, checkfirst=False)
                keep_events(tx)
                copy_rows(rows, tx)
                write_meta(tx, TIE, _UNFINISHED.to_json())
                tx.commit()
        finally:
            upgraded.close()
            target.close()
        incarnation, held = self._accept(location)
        return Restored(head=self.head, incarnation=incarnation, held=held, kept=kept)

    def _accept(self, location: Location) -> tuple[int, HeldWork]:
        """Begin another incarnation, above each that this computer knows of, in which no engine starts anything."""
        seen = read_witnesses(self.location).get(self.head.installation)
        with closing(StateChanges(location, self.now, accept_other_state=True)) as store:  # notes no witness yet
            held = store.accept_restored_state(seen.incarnation if seen is not None else 0)
            return store.incarnation, held
