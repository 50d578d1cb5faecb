"""The machines that Google rents out, by the tables of the catalogue (orchestrator/catalog/rented.py)."""

from __future__ import annotations

from orchestrator.catalog.tpu import (
    explain_incomplete,
    find_price,
    find_rented,
    find_unlisted,
    list_common_names,
    list_machines,
    spell,
)
from orchestrator.catalog.tpu import find_by_machine_type as find_reported

__all__ = [
    "explain_incomplete",
    "find_price",
    "find_rented",
    "find_reported",
    "find_unlisted",
    "list_common_names",
    "list_machines",
    "spell",
]
