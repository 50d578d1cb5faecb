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
    ],
)
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def accelerators(name: str | None, output: str) -> None:
    """Show shapes, hosts and list prices, from dated tables. No cloud is asked."""
    found = _matching(name)
    if output == "json":
        items = [_as_json(machine) for machine in found]
        write_stdout(json.dumps({"version": 1, "kind": "accelerators", "accelerators": items}, indent=2))
        return
    rows = [("NAME", "HOSTS", "CHIPS", "HBM/CHIP", "BF16/CHIP", "ON DEMAND", "SPOT")]
    write_stdout(*draw_table([*rows, *map(_row, found)], sys.stdout))
    dates = {price.as_of for machine in found for price in _prices(machine) if price is not None and price.as_of}
    if dates:
        write_stderr(f"US list prices per hour of the whole slice or instance; newest: {max(dates)}")


def _matching(name: str | None) -> list[Machine]:
    """Return all common accelerators, those whose name contains `name`, or the one that `name` means.

    Raises:
        UserError: No accelerator matches.
    """
    from orchestrator.catalog.accelerators import list_common_names, resolve

    names = list(list_common_names())
    if name is not None:
        try:
            return [resolve(name)]
        except UserError:
            names = [known for known in names if name.lower() in known.lower()]
            if not names:
                raise
    machines = {machine.name: machine for machine in map(resolve, names)}
    return list(machines.values())


def _prices(machine: Machine) -> tuple[Price | None, Price | None]:
    from orchestrator.catalog.prices import price_per_hour
    from orchestrator.slices import OnDemand, Spot

    return price_per_hour(machine, OnDemand()), price_per_hour(machine, Spot())


def _row(machine: Machine) -> tuple[str, str, str, str, str, str, str]:
    on_demand, spot = _prices(machine)
    return (
        machine.name,
        str(machine.hosts),
        str(machine.chips),
        f"{machine.hbm_gib_per_chip:g} GiB" if machine.hbm_gib_per_chip else "-",
        f"{machine.peak_bf16_tflops_per_chip:,.0f} TFLOP/s" if machine.peak_bf16_tflops_per_chip else "-",
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
