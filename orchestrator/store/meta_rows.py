"""The rows of the table meta: what the store says of itself. Read before anything else of a store, by its version."""

from __future__ import annotations

from sqlalchemy import Connection, text

INSTALLATION = "installation"
INCARNATION = "incarnation"
TIE = "tie"
SERVERS_KEY = "servers_key"  # the public SSH key with which all servers of the store enter hosts
BACKUP = "backup"  # see backup_note.BackupNote


def read_meta(tx: Connection) -> dict[str, str]:
    """Return all rows."""
    return {str(row.key): str(row.value) for row in tx.execute(text("SELECT key, value FROM meta"))}


def write_meta(tx: Connection, key: str, value: str) -> None:
    """Write one row, replacing an earlier one."""
    query = "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    tx.execute(text(query), {"key": key, "value": value})


def drop_meta(tx: Connection, key: str) -> None:
    """Delete one row, if it is there."""
    tx.execute(text("DELETE FROM meta WHERE key = :key"), {"key": key})
