"""Backups of the store in a bucket: `<bucket>/orch-store/<installation>/`, with the newest one's head beside them.

`head.json` moves by compare-and-swap, and never to an older state: so it also shows that a store was put back.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import ConflictError, NotFoundError, StorageError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.objects import Version
from orchestrator.store.backup_file import write_backup
from orchestrator.store.backup_note import BackupHead, BackupNote
from orchestrator.store.backup_record import record_backup
from orchestrator.store.connection import Database
from orchestrator.store.incarnation import find_hash
from orchestrator.store.location import Location
from orchestrator.store.migrations import open_tables

FOLDER = "orch-store"
HEAD = "head.json"
KEPT = 10  # backups of one installation
_MOST_BYTES = 64 << 10  # of head.json, which has 400
_TRIES = 5


def back_up(location: Location, bucket: Bucket, at: float) -> BackupHead:
    """Copy the store into the bucket and return the head that lies there then.

    When another computer has written a newer backup meanwhile, that one stays.

    Raises:
        StoreError: the store was copied or put back, or cannot be read.
        AccessError: this login may not record the backup, so none is made.
        StorageError: the bucket has newer events than the store, or refused.
    """
    database = Database(location)
    try:
        opened = open_tables(database, at)
        folder = f"{FOLDER}/{opened.installation}"
        with tempfile.TemporaryDirectory(prefix="orch-backup-") as scratch:
            copy = Path(scratch, "store.db")
            made = write_backup(database, copy, at)
            made = replace(made, file=f"{made.incarnation}-{made.seq:012d}.db")
            present, _ = read_backup_head(bucket, folder)
            _refuse_other_history(database, bucket, present, made)
            if present is None or present.order < made.order:  # the head keeps the digest of the first of two
                bucket.upload_file(copy, f"{folder}/{made.file}")
        newest = _move_head(bucket, folder, made)
        _drop_old(bucket, folder)
        record_backup(database, BackupNote(uri=bucket.uri, at=at, seq=newest.seq))
        return newest
    finally:
        database.close()


def read_backup_head(bucket: Bucket, folder: str) -> tuple[BackupHead | None, Version | None]:
    """Return the head of the newest backup in a folder, with its version for the next move; None before the first."""
    path = f"{folder}/{HEAD}" if folder else HEAD
    info = bucket.head(path)  # before the content: a change in between makes the next move fail
    if info is None:
        return None, None
    return BackupHead.parse(bucket.get_bounded(path, _MOST_BYTES), bucket.uri_of(path)), info.version


def find_backup_folder(bucket: Bucket) -> str:
    """Return the folder of the only installation that has backups in the bucket, "" where the URI names it itself.

    Raises:
        NotFoundError: there is none, or more than one.
    """
    if bucket.exists(HEAD):
        return ""
    folders = [folder for folder in bucket.list_dir(FOLDER).folders if bucket.exists(f"{folder}/{HEAD}")]
    if len(folders) == 1:
        return folders[0]
    if not folders:
        step = "orch storage ls -r   lists what is there"
        raise NotFoundError(f"no backup of a store in {bucket.uri}", f"there is no {FOLDER}/*/{HEAD}", step)
    shown = "\n".join(f"orch store restore {bucket.uri_of(folder)}" for folder in folders[:2])
    raise NotFoundError(f"{bucket.uri} has backups of {len(folders)} installations", "name one of them", shown)


def _refuse_other_history(database: Database, bucket: Bucket, present: BackupHead | None, made: BackupHead) -> None:
    """Raise StorageError where the bucket has events of this very incarnation that the store has not."""
    if present is None or present.incarnation < made.incarnation:
        return
    known = present.incarnation == made.incarnation and find_hash(database, present.seq) == present.hash
    if not known and present.seq:
        why = f"the backup there ends with event {present.seq}, which this store has not: an older state was put back"
        step = f"orch store restore {bucket.uri}   or, to keep this state: orch store restored"
        raise StorageError(f"the store is not copied to {bucket.uri}", why, step)


def _move_head(bucket: Bucket, folder: str, made: BackupHead) -> BackupHead:
    path = f"{folder}/{HEAD}"
    for _ in range(_TRIES):
        present, version = read_backup_head(bucket, folder)
        if present is not None and present.order >= made.order:
            return present
        data = made.to_json()
        if bucket.put_if_absent(path, data) if version is None else bucket.replace_if(path, data, version):
            return made
    raise ConflictError(f"{bucket.uri_of(path)} changes too often", f"{_TRIES} tries failed", "orch store backup")


def _drop_old(bucket: Bucket, folder: str) -> None:
    """Delete all but the newest backups. The one that head.json names is the newest."""
    names = [info.path for info in bucket.list(folder) if info.path.endswith(".db")]
    names.sort(key=_order)
    bucket.delete_all(names[:-KEPT])


def _order(path: str) -> tuple[int, int]:
    incarnation, _, seq = Path(path).stem.partition("-")
    return (int(incarnation), int(seq)) if incarnation.isdigit() and seq.isdigit() else (0, 0)
