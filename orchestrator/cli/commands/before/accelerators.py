"""`orch accelerators`: accelerators with their shapes and prices, from dated tables and what was refreshed."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.catalog.comparing import Compared
    from orchestrator.catalog.machines import Machine
    from orchestrator.catalog.prices import Price

# As in catalog/comparing.py, which is loaded only when the command runs; a test compares them.
MARKETS = ("on-demand", "spot", "block", "flex-start", "reservation")
ORDERS = ("price", "chip", "pflop", "memory", "chips")
_USUAL_MARKETS = ("on-demand", "spot")
_HEADS = {
    "on-demand": "ON DEMAND",
    "spot": "SPOT",
    "block": "BLOCK",
    "flex-start": "FLEX-START",
    "reservation": "RESERVATION",
}


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch accelerators", "the common sizes of everything"),
        ("orch accelerators H100", "the machines that have this chip; H100:8 those with eight"),
        ("orch accelerators v5e", "those with v5e in their name"),
        ("orch accelerators --sort pflop --market spot", "what computes most for its price"),
        ("orch accelerators --region eu-north-1 --only aws", "one region, one cloud"),
        ("orch accelerators tpu-v5e-16 -v", "one of them, by any of its names, with sources and dates"),
        ("orch accelerators --cpu", "machines without accelerators"),
    ],
)
@click.argument("name", required=False)
@click.option("--cpu", is_flag=True, help="Show machines without accelerators instead.")
@click.option("--region", metavar="REGION", default="", help="Prices in this region, and what is sold there.")
@click.option("--market", type=click.Choice(MARKETS), help="Only this market, instead of on demand and spot.")
@click.option("--only", metavar="WORDS", default="", help="Clouds, chips or machines, such as v6e,H100.")
@click.option("--sort", "order", type=click.Choice(ORDERS), help="Cheapest first; memory and chips: most first.")
@click.option("-v", "--verbose", is_flag=True, help="Show also where each price holds, its date and its source.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def accelerators(
    name: str | None,
    cpu: bool,
    region: str,
    market: str | None,
    only: str,
    order: str | None,
    verbose: bool,
    output: str,
) -> None:
    """Show shapes, hosts and prices an hour. No cloud is asked; `orch catalog refresh` asks them.

    TFLOP/S is the peak of one chip in bf16, without sparsity. $/CHIP and $/PFLOP are for an hour, by the first price
    that is shown: of one chip, and of 1 PFLOP/s at that peak.
    """
    if name and cpu:
        raise UserError(
            "NAME and --cpu exclude each other", "", f"orch accelerators {name}   or: orch accelerators --cpu"
        )
    from orchestrator.catalog.comparing import choose_by_words, compare

    words = [word.strip() for word in only.split(",") if word.strip()]
    machines = _matching(name, cpu=cpu)
    markets = (market,) if market else _USUAL_MARKETS
    found = compare(choose_by_words(machines, words) if words else machines, markets, region, order or "")
    if not found:
        where = f" in {region}" if region else ""
        why = "each cloud, chip and machine that is named has to fit" if words else ""
        raise UserError(f"no machine{where} fits these words", why, "orch accelerators")
    if output == "json":
        items = [_as_json(one) for one in found]
        write_stdout(json.dumps({"version": 1, "kind": "accelerators", "accelerators": items}, indent=2))
        return
    write_stdout(*draw_table(_rows(found, markets), sys.stdout, optional=_OPTIONAL))
    if verbose:
        write_stdout("", *_origins(found))
    write_stderr(*_notes(found, markets, region))


_OPTIONAL = ("TFLOP/S", "HBM/CHIP", "$/PFLOP", "HOSTS")


def _matching(name: str | None, *, cpu: bool) -> list[Machine]:
    """Return all common machines with accelerators or without, or those that `name` means, or that contain it.

    Raises:
        UserError: No accelerator matches.
    """
    from orchestrator.catalog.accelerators import list_common_names, resolve
    from orchestrator.catalog.comparing import find_by_shape
    from orchestrator.catalog.rented import load_tables

    chosen = [machine for table in load_tables() for machine in table.list_machines()]
    names = [*list_common_names(), *(machine.name for machine in chosen)]
    if name is not None:
        if of_shape := find_by_shape(chosen, name):
            return of_shape
        try:
            return [resolve(name)]
        except UserError:
            names = [known for known in names if name.lower() in known.lower()]
            if not names:
                raise
    if name is not None:
        return list({machine.name: machine for machine in map(resolve, names)}.values())
    known = {machine.name: machine for machine in chosen}
    found = {one.name: one for one in (known.get(word) or resolve(word) for word in names if ":" not in word)}
    return [machine for machine in found.values() if bool(machine.chips) is not cpu]


def _rows(found: Sequence[Compared], markets: Sequence[str]) -> list[tuple[str, ...]]:
    with_chips = any(one.machine.chips for one in found)
    shape = ("HOSTS", "CHIPS", "HBM/CHIP", "TFLOP/S") if with_chips else ("VCPUS", "MEMORY")
    relative = ("$/CHIP", "$/PFLOP") if with_chips else ()
    rows: list[tuple[str, ...]] = [("NAME", *shape, *(_HEADS[one] for one in markets), *relative)]
    for one in found:
        price = one.price
        cells = _shape(one) if with_chips else _host(one.machine)
        compared = (_amount(one.per_chip(price)), _amount(one.per_pflop(price))) if with_chips else ()
        dollars = (_dollars(one.prices[market]) for market in markets)
        rows.append((one.machine.name, *cells, *dollars, *compared))
    return rows


def _origins(found: Sequence[Compared]) -> list[str]:
    """Return a line for each source of prices, with the machines that have them."""
    from orchestrator.messages import join_some

    names: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        for price in one.prices.values():
            if price is not None:
                names.setdefault((price.note, price.as_of, price.source), []).append(one.machine.name)
    return [
        f"{note}, {as_of}: {join_some(machines)}: {source or 'no source'}"
        for (note, as_of, source), machines in names.items()
    ]


def _shape(one: Compared) -> tuple[str, ...]:
    machine = one.machine
    return (
        str(machine.hosts),
        f"{machine.chips} {machine.chip}" if machine.is_instance_type else str(machine.chips),
        f"{machine.hbm_gib_per_chip:g} GiB" if machine.hbm_gib_per_chip else "-",
        f"{machine.peak_bf16_tflops_per_chip:,.0f}" if machine.peak_bf16_tflops_per_chip else "-",
    )


def _host(machine: Machine) -> tuple[str, str]:
    return (f"{machine.vcpus}", f"{machine.ram_gib:g} GiB") if machine.vcpus else ("-", "-")


def _notes(found: Sequence[Compared], markets: Sequence[str], region: str) -> list[str]:
    from orchestrator.catalog.comparing import BY_CONTRACT
    from orchestrator.catalog.prices import describe_implausible
    from orchestrator.catalog.refreshed import describe_problems
    from orchestrator.providers.block_market import find_seller

    prices = [price for one in found for price in one.prices.values() if price is not None]
    notes: list[str] = []
    if dates := {price.as_of for price in prices if price.as_of}:
        where = f"prices in {region}" if region else "US list prices"
        refreshed = sum(price.refreshed for price in prices)
        own = f"; {refreshed} of {len(prices)} from orch catalog refresh" if refreshed else ""
        notes.append(f"{where} per hour of the whole slice or instance; newest: {max(dates)}{own}")
    elif markets == (BY_CONTRACT,):
        notes.append("the price of a reservation is in your contract with the vendor")
    elif "block" in markets and not any(one.machine.provider == find_seller().name for one in found):
        notes.append(f"none of these machines is sold in Capacity Blocks: {find_seller().vendor} has them")
    elif "block" in markets:
        notes.append("no price of a Capacity Block was read: orch catalog refresh   or: orch blocks find TYPE")
    notes += describe_problems({one.machine.provider: None for one in found if one.machine.provider}, time.time())
    notes += describe_implausible(one.machine for one in found)
    return notes


def _dollars(price: Price | None) -> str:
    if price is None:
        return "unknown"
    least = format_amount(price.low)
    return f"{least}-{price.high:,.2f}" if price.is_range else least  # a column has no room for more


def _amount(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:,.2f}" if dollars >= 0.1 else f"{dollars:.3f}"


def _as_json(one: Compared) -> dict[str, object]:
    machine = one.machine
    document: dict[str, object] = {
        "name": machine.name,
        "provider": machine.provider,
        "hosts": machine.hosts,
        "chips": machine.chips,
        "chips_per_host": machine.chips_per_host,
        "chip": machine.chip or None,
        "shape": one.shape or None,
        "vcpus": machine.vcpus or None,
        "memory_gib": machine.ram_gib or None,
        "hbm_gib_per_chip": machine.hbm_gib_per_chip or None,
        "peak_bf16_tflops_per_chip": machine.peak_bf16_tflops_per_chip or None,
        "backends": list(machine.backends),
        "prices": {market: _price_json(one, price) for market, price in one.prices.items()},
    }
    for market in _USUAL_MARKETS:
        if market in one.prices:
            document[f"{market.replace('-', '_')}_per_hour"] = document["prices"][market]  # type: ignore[index]  # a dict
    return document


def _price_json(one: Compared, price: Price | None) -> dict[str, object] | None:
    if price is None:
        return None
    return {
        "low": price.low,
        "typical": price.middle,
        "high": price.high,
        "per_chip": one.per_chip(price),
        "per_pflop": one.per_pflop(price),
        "region": price.region or None,
        "note": price.note,
        "source": price.source or None,
        "as_of": price.as_of or None,
        "refreshed": price.refreshed,
    }
