"""`orch accelerators`: accelerators with their shapes and list prices, from dated tables."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.catalog.machines import Machine
    from orchestrator.catalog.prices import Price


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch accelerators", "the common sizes of everything"),
        ("orch accelerators v5e", "those with v5e in their name"),
        ("orch accelerators tpu-v5e-16", "one of them, by any of its names"),
        ("orch accelerators L4", "the machines that have this chip"),
        ("orch accelerators --cpu", "machines without accelerators"),
    ],
)
@click.argument("name", required=False)
@click.option("--cpu", is_flag=True, help="Show machines without accelerators instead.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def accelerators(name: str | None, cpu: bool, output: str) -> None:
    """Show shapes, hosts and list prices, from dated tables. No cloud is asked.

    TFLOP/S is the peak of one chip in bf16, without sparsity.
    """
    if name and cpu:
        raise UserError(
            "NAME and --cpu exclude each other", "", f"orch accelerators {name}   or: orch accelerators --cpu"
        )
    found = _matching(name, cpu=cpu)
    if output == "json":
        items = [_as_json(machine) for machine in found]
        write_stdout(json.dumps({"version": 1, "kind": "accelerators", "accelerators": items}, indent=2))
        return
    with_chips = any(machine.chips for machine in found)
    rows = [_CHIPS_HEAD, *map(_row, found)] if with_chips else [_CPU_HEAD, *map(_cpu_row, found)]
    write_stdout(*draw_table(rows, sys.stdout))
    dates = {price.as_of for machine in found for price in _prices(machine) if price is not None and price.as_of}
    if dates:
        write_stderr(f"US list prices per hour of the whole slice or instance; newest: {max(dates)}")


_CHIPS_HEAD = ("NAME", "HOSTS", "CHIPS", "HBM/CHIP", "TFLOP/S", "ON DEMAND", "SPOT")
_CPU_HEAD = ("NAME", "VCPUS", "MEMORY", "ON DEMAND", "SPOT")


def _matching(name: str | None, *, cpu: bool) -> list[Machine]:
    """Return all common machines with accelerators or without, or those that `name` means, or that contain it.

    Raises:
        UserError: No accelerator matches.
    """
    from orchestrator.catalog.accelerators import list_common_names, resolve
    from orchestrator.catalog.rented import load_tables

    chosen = [machine for table in load_tables() for machine in table.list_machines()]
    names = [*list_common_names(), *(machine.name for machine in chosen)]
    if name is not None:
        of_chip: list[Machine] = [one for one in chosen if one.chip and one.chip.lower() == name.lower()]
        try:
            return of_chip or [resolve(name)]
        except UserError:
            names = [known for known in names if name.lower() in known.lower()]
            if not names:
                raise
    machines = {machine.name: machine for machine in map(resolve, names)}
    return [machine for machine in machines.values() if name is not None or bool(machine.chips) is not cpu]


def _prices(machine: Machine) -> tuple[Price | None, Price | None]:
    from orchestrator.catalog.prices import price_per_hour
    from orchestrator.slices import OnDemand, Spot

    return price_per_hour(machine, OnDemand()), price_per_hour(machine, Spot())


def _cpu_row(machine: Machine) -> tuple[str, ...]:
    known = (f"{machine.vcpus}", f"{machine.ram_gib:g} GiB") if machine.vcpus else ("-", "-")
    return (machine.name, *known, *map(_dollars, _prices(machine)))


def _row(machine: Machine) -> tuple[str, ...]:
    on_demand, spot = _prices(machine)
    return (
        machine.name,
        str(machine.hosts),
        f"{machine.chips} {machine.chip}" if machine.is_instance_type else str(machine.chips),
        f"{machine.hbm_gib_per_chip:g} GiB" if machine.hbm_gib_per_chip else "-",
        f"{machine.peak_bf16_tflops_per_chip:,.0f}" if machine.peak_bf16_tflops_per_chip else "-",
        _dollars(on_demand),
        _dollars(spot),
    )


def _dollars(price: Price | None) -> str:
    if price is None:
        return "unknown"
    return f"${price.low:,.2f}-{price.high:,.2f}" if price.is_range else f"${price.low:,.2f}"


def _as_json(machine: Machine) -> dict[str, object]:
    on_demand, spot = _prices(machine)
    return {
        "name": machine.name,
        "hosts": machine.hosts,
        "chips": machine.chips,
        "chips_per_host": machine.chips_per_host,
        "chip": machine.chip or None,
        "vcpus": machine.vcpus or None,
        "memory_gib": machine.ram_gib or None,
        "hbm_gib_per_chip": machine.hbm_gib_per_chip or None,
        "peak_bf16_tflops_per_chip": machine.peak_bf16_tflops_per_chip or None,
        "backends": list(machine.backends),
        "on_demand_per_hour": _price_json(on_demand),
        "spot_per_hour": _price_json(spot),
    }


def _price_json(price: Price | None) -> dict[str, object] | None:
    if price is None:
        return None
    return {"low": price.low, "high": price.high, "note": price.note, "as_of": price.as_of or None}
