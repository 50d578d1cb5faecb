"""The upgrade of the tables by hand: `orch store upgrade`. A team decides when; a person's file is upgraded unasked."""

from __future__ import annotations

from orchestrator.store.connection import Database
from orchestrator.store.location import Location, describe_location
from orchestrator.store.migrations import create_or_migrate, read_rows
from orchestrator.store.version import SCHEMA_VERSION, Versions, newer_store_error, parse_versions


def read_versions(location: Location) -> Versions | None:
    """Return the versions of a store, None where there is none yet."""
    database = Database(location)
    try:
        rows = read_rows(database)
    finally:
        database.close()
    return parse_versions(rows) if rows is not None else None


def upgrade_store(location: Location, at: float) -> None:
    """Bring the tables to SCHEMA_VERSION in one transaction; a store of that version or a newer one is left as it is.

    Raises:
        StoreError: a newer orch wrote them, and this one may not change them.
    """
    found = read_versions(location)
    if found is not None and found.writer > SCHEMA_VERSION:
        raise newer_store_error(describe_location(location), found.tables)
    database = Database(location)
    try:
        create_or_migrate(database, at)
    finally:
        database.close()
