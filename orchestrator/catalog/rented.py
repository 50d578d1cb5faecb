"""The tables of machines that clouds rent out: each is a module `rented` of a driver's folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from orchestrator.catalog.machines import Machine
from orchestrator.drivers import has_part, list_driver_names, load_part
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.catalog.prices import Price


class MachineTable(Protocol):
    """What a driver's module `rented` knows of the machines that it rents out. All is pure."""

    def find_rented(self, name: str) -> Machine | None:
        """Return the machine that a name in any usual spelling means; None for a name of another table.

        Raises:
            UserError: The name is of this table, and there is no such machine.
        """
        ...

    def find_unlisted(self, name: str) -> Machine | None:
        """Return a machine that is newer than the table, known by its name alone; None for a word that is no name."""
        ...

    def find_reported(self, name: str) -> Machine | None:
        """Return the machine that the provider's own listings call so, where that is another name; else None."""
        ...

    def list_machines(self) -> Sequence[Machine]:
        """Return those that can be chosen by chips, vCPUs and memory; none where machines are named in full."""
        ...

    def find_price(self, machine: Machine, market: str, region: str) -> Price | None:
        """Return the list price of a machine; `market` is "on-demand" or "spot", and region "" the US list price."""
        ...

    def list_common_names(self) -> tuple[str, ...]:
        """Return names for suggestions."""
        ...

    def spell(self, name: str) -> str:
        """Return one of the common names as suggestions write it."""
        ...

    def explain_incomplete(self, name: str) -> UserError | None:
        """Return an error for a name that is of this table, but incomplete; None for every other."""
        ...


@cache
def load_tables() -> tuple[MachineTable, ...]:
    """Return the tables of all drivers that rent machines out."""
    return tuple(
        cast(MachineTable, load_part(name, "rented")) for name in list_driver_names() if has_part(name, "rented")
    )


def load_table(provider: str) -> MachineTable | None:
    """Return the table of a driver; None for a driver without one."""
    return cast(MachineTable, load_part(provider, "rented")) if provider and has_part(provider, "rented") else None
