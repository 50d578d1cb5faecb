"""The machines that AWS rents out, by the tables of the catalogue (orchestrator/catalog/rented.py)."""

from __future__ import annotations

from orchestrator.catalog.ec2 import find_instance as find_rented
from orchestrator.catalog.ec2 import find_price, list_common_names, list_machines
from orchestrator.catalog.ec2 import make_unlisted_type as find_unlisted

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


def find_reported(name: str) -> None:
    """Return None: EC2's listings have the names of the table."""
    del name


def spell(name: str) -> str:
    """Return the name itself: a type has one spelling."""
    return name


def explain_incomplete(name: str) -> None:
    """Return None: an instance type has no parts that could be missing."""
    del name
