"""The record of the last backup, in the store: the owner of the tables writes it, a member by a server function."""

from __future__ import annotations

from sqlalchemy import text

from orchestrator.errors import AccessError
from orchestrator.store.backup_note import BackupNote
from orchestrator.store.connection import Database
from orchestrator.store.grants import NOTE_FUNCTION
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import BACKUP, write_meta

_RIGHTS = text(
    "SELECT current_user AS login, has_table_privilege('meta', 'INSERT') AND has_table_privilege('meta', 'UPDATE') "
    "AS may_write, COALESCE(has_function_privilege(to_regprocedure(:function), 'EXECUTE'), false) AS may_call"
)


def record_backup(database: Database, note: BackupNote) -> None:
    """Write the note of a backup that was made."""
    with database.writing() as tx:
        if database.is_file or tx.execute(_RIGHTS, {"function": NOTE_FUNCTION}).one().may_write:
            write_meta(tx, BACKUP, note.to_json())
        else:
            tx.execute(text("SELECT orch_note_backup(:note)"), {"note": note.to_json()})
        tx.commit()


def refuse_unrecorded_backup(database: Database) -> None:
    """Raise AccessError where the record of a backup would be refused: every command would make another copy."""
    if database.is_file:
        return
    with database.reading() as tx:
        rights = tx.execute(_RIGHTS, {"function": NOTE_FUNCTION}).one()
    if not (rights.may_write or rights.may_call):
        raise AccessError(
            f"the login '{rights.login}' may not record a backup of the store {describe_location(database.location)}",
            "it has not been granted its rights; no copy was made",
            f"with the login that owns the tables: orch store grant {rights.login}",
        )
