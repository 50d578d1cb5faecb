"""The record of the last backup, in the store."""

from __future__ import annotations

from orchestrator.store.backup_note import BackupNote
from orchestrator.store.connection import Database
from orchestrator.store.meta_rows import BACKUP, write_meta


def record_backup(database: Database, note: BackupNote) -> None:
    """Write the note of a backup that was made."""
    with database.writing() as tx:
        write_meta(tx, BACKUP, note.to_json())
        tx.commit()
