"""The table of machines of a cloud whose driver is the plain one: `machines.toml` in the driver's folder."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price, describe_price
from orchestrator.catalog.tables import Row
from orchestrator.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainType(Machine):
    """A machine type of such a cloud.

    Attributes:
        places: Where it is offered, as region/zone.
        usd: List price on demand, an hour; 0 where it is not known.
        usd_spot: The same for spot.
        as_of: When the row was read.
        source: Where.
    """

    places: tuple[str, ...]
    usd: float
    usd_spot: float
    as_of: str
    source: str


class PlainTable:
    """See catalog/rented.MachineTable.

    Args:
        provider: Name of the driver.
        package: Its package, with `machines.toml`.
    """

    def __init__(self, provider: str, package: str) -> None:
        self._provider = provider
        self._package = package

    @cached_property
    def types(self) -> dict[str, PlainType]:
        """The types by name."""
        text = files(self._package).joinpath("machines.toml").read_text(encoding="utf-8")
        rows = [Row(f"{self._provider}/machines.machine", cells) for cells in tomllib.loads(text)["machine"]]
        return {row.text("name"): self._read(row) for row in rows}

    def find_rented(self, name: str) -> PlainType | None:
        """Return the type of a name."""
        return self.types.get(name.strip().lower())

    def find_reported(self, name: str) -> None:
        """Return None: the listings of such a cloud have the names of the table."""
        del name

    def list_machines(self) -> Sequence[Machine]:
        """Return all types."""
        return tuple(self.types.values())

    def find_unlisted(self, name: str) -> None:
        """Return None: every type of such a cloud is in the table."""
        del name

    def find_price(self, machine: Machine, market: str, region: str) -> Price | None:
        """Return the list price of a type; None where it is not known."""
        if not isinstance(machine, PlainType) or market not in ("on-demand", "spot"):
            return None
        usd = machine.usd_spot if market == "spot" else machine.usd
        note = ", ".join(part for part in (describe_price(market), region) if part)
        return Price(low=usd, high=usd, note=note, as_of=machine.as_of, source=machine.source) if usd else None

    def list_common_names(self) -> tuple[str, ...]:
        """Return the names of all types."""
        return tuple(self.types)

    def spell(self, name: str) -> str:
        """Return the name itself: a type has one spelling."""
        return name

    def explain_incomplete(self, name: str) -> UserError | None:
        """Return None: a name has no parts that could be missing."""
        del name
        return None

    def _read(self, row: Row) -> PlainType:
        chips = row.whole("chips", 0)
        return PlainType(
            name=row.text("name"),
            hosts=1,
            chips_per_host=chips,
            cores_per_chip=1 if chips else 0,
            hbm_gib_per_chip=row.number("hbm_gib") if chips else 0,
            peak_bf16_tflops_per_chip=row.number("peak_bf16_tflops") if chips else 0,
            backends=("cuda", "cpu") if chips else ("cpu",),
            provider=self._provider,
            is_instance_type=True,
            chip=row.text("chip") if chips else "",
            device="cuda" if chips else "cpu",
            vcpus=row.whole("vcpus"),
            ram_gib=row.whole("ram_gib"),
            places=row.texts("places"),
            usd=row.number("usd"),
            usd_spot=row.number("usd_spot"),
            as_of=row.text("as_of"),
            source=row.text("source"),
        )
