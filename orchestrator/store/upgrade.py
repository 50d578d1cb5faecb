"""The upgrade of the tables by hand: `orch store upgrade`. A team decides when; a person's file is upgraded unasked."""

from __future__ import annotations

from contextlib import closing

from orchestrator.store.connection import Database
from orchestrator.store.location import Location
from orchestrator.store.migrations import create_or_migrate, read_rows, refuse_other_version


def upgrade_store(location: Location, at: float) -> None:
    """Bring the tables to SCHEMA_VERSION in one transaction; a store of that version or a newer one is left as it is.

    Raises:
        StoreError: the tables have a version that this orch may not change.
    """
    with closing(Database(location)) as database:
        refuse_other_version(database, read_rows(database) or {})
        create_or_migrate(database, at)
