"""Machine types of Compute Engine without TPUs (data/compute.toml), and their prices (data/compute_prices.toml)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import cast

from orchestrator.catalog.chips import NO_CHIP, load_chips, split_count
from orchestrator.catalog.choosing import rank_by_price
from orchestrator.catalog.machines import ComputeType, Machine
from orchestrator.catalog.prices import Price, describe_price, list_refreshed_regions, list_region_markets
from orchestrator.catalog.tables import Row, read_rows
from orchestrator.slices import Market

PROVIDER = "gcp"


def find_type(name: str) -> ComputeType | None:
    """Return the type called `name`, or the cheapest that NAME:COUNT means; None where there is none."""
    requested = name.strip()
    found = load_types().get(requested.lower())
    if found is not None:
        return found if requested == found.name else replace(found, normalised_from=requested)
    split = split_count(requested)
    if split is None:
        return None
    fitting = [one for one in list_types() if (one.chip, one.chips) == (split[0].name, split[1])]
    return replace(min(fitting, key=rank_by_price), normalised_from=requested) if fitting else None


@cache
def load_types() -> dict[str, ComputeType]:
    """Return the types of the table by name."""
    rows = [row for listed in read_rows("compute", "type") for row in listed.expand("sizes")]
    return {one.name: one for one in map(_read_type, rows)}


def list_types() -> tuple[ComputeType, ...]:
    """Return all types of the table."""
    return tuple(load_types().values())


def list_common_names() -> tuple[str, ...]:
    """Return names for suggestions: NAME:COUNT, and every type."""
    counts = dict.fromkeys(f"{one.chip}:{one.chips}" for one in list_types() if one.chip)
    return (*counts, *load_types())


def find_price(machine: Machine, market: str, region: str) -> Price | None:
    """Return the price of a type in a market, by the words of the table; None when it is not known."""
    for row in _list_prices(machine.name, market):
        regions = row.texts("regions")
        if region and region not in regions:
            continue
        parts = ((machine.vcpus, "usd_vcpu"), (machine.ram_gib, "usd_gib"), (machine.chips, "usd_gpu"))
        dollars = round(sum(amount * row.number(key) for amount, key in parts), 6)
        where = region or regions[0]
        note = f"{describe_price(market)}, {where}"
        return Price(
            low=dollars, high=dollars, note=note, as_of=row.text("as_of"), source=row.text("source"), region=where
        )
    return None


def priced_regions(machine: ComputeType, market: Market) -> frozenset[str]:
    """Return the regions with a known price; for a contract market those of on demand."""
    return list_refreshed_regions(machine, market) | {
        region
        for word in list_region_markets(market)
        for row in _list_prices(machine.name, word)
        for region in row.texts("regions")
    }


@cache
def _list_prices(name: str, market: str) -> tuple[Row, ...]:
    rows = read_rows("compute_prices", "price")
    return tuple(row for row in rows if name.startswith(row.text("prefix")) and row.text("market") == market)


def _read_type(row: Row) -> ComputeType:
    chip = load_chips()[row.text("chip").lower()] if row.text("chip") else NO_CHIP
    letters = cast("dict[str, str]", row.amounts("zones"))
    return ComputeType(
        name=row.text("name"),
        hosts=1,
        chips_per_host=row.whole("chips"),
        cores_per_chip=chip.cores,
        hbm_gib_per_chip=chip.hbm_gib,
        peak_bf16_tflops_per_chip=chip.peak_bf16_tflops,
        backends=chip.backends,
        provider=PROVIDER,
        is_instance_type=True,
        chip=chip.name,
        device=chip.device,
        vcpus=row.whole("vcpus"),
        ram_gib=row.whole("ram_gib"),
        regions=tuple(letters),
        family=row.text("family"),
        local_ssd=row.flag("local_ssd"),
        zones=tuple(f"{region}-{letter}" for region, within in letters.items() for letter in within),
    )
