"""The schema version that this orch writes, and the errors for what only a newer orch knows."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.store.failures import StoreError

SCHEMA_VERSION = 5
_UPGRADE = "upgrade orch: pip install --upgrade orch"


def newer_store_error(place: str, version: int) -> StoreError:
    """Return the error for a store that a newer orch has written."""
    return StoreError(
        f"the store {place} was written by a newer orch",
        f"its tables have version {version}, this orch supports versions up to {SCHEMA_VERSION}",
        _UPGRADE,
    )


def unknown_value_error(row: str, column: str, value: object, known: Iterable[str] = ()) -> StoreError:
    """Return the error for a stored value that this orch does not know.

    Such a row is refused: a default could be wrong, and wrong about money.

    Args:
        row: the subject of the row, as `audited.format_subject` writes it.
        column: name of the column.
        value: what the column holds.
        known: the values that this orch knows, where they can be listed.
    """
    listed = ", ".join(repr(one) for one in known if one)
    return StoreError(
        f"the store has a row that this orch cannot read: {row}",
        f"{column} is {_shortened(value)}, written by a newer orch or changed by another program"
        + (f"\nknown values: {listed}" if listed else ""),
        _UPGRADE,
    )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
