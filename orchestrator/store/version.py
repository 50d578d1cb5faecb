"""The version of the tables that this orch writes."""

from __future__ import annotations

from orchestrator.store.failures import StoreError

SCHEMA_VERSION = 2


def newer(place: str, version: int) -> StoreError:
    """The refusal of a store that a newer orch has written."""
    return StoreError(
        f"the store {place} was written by a newer orch",
        f"its tables have version {version}, this orch knows up to {SCHEMA_VERSION}",
        "upgrade orch: pip install --upgrade orch",
    )
