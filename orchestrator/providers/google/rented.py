"""The machines that Google rents out, by the tables of the catalogue (orchestrator/catalog/rented.py)."""

from __future__ import annotations

from orchestrator.catalog import compute, tpu
from orchestrator.catalog.compute import list_types as list_machines
from orchestrator.catalog.machines import ComputeType, Machine, TpuSlice
from orchestrator.catalog.prices import Price
from orchestrator.catalog.tpu import explain_incomplete, find_unlisted, spell
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


def find_rented(name: str) -> TpuSlice | ComputeType | None:
    """Return the slice or the machine type that a name means; None when the name is of neither.

    Raises:
        UserError: There is no such slice.
    """
    return tpu.find_rented(name) or compute.find_type(name)


def find_price(machine: Machine, market: str, region: str) -> Price | None:
    """Return the price in a market, by the words of the tables; None when it is not known."""
    if isinstance(machine, ComputeType):
        return compute.find_price(machine, market, region)
    return tpu.find_price(machine, market, region)


def list_common_names() -> tuple[str, ...]:
    """Return names for suggestions."""
    return (*tpu.list_common_names(), *compute.list_common_names())
