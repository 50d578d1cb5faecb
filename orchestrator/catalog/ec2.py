"""EC2 instance types (data/ec2.toml), and their list prices (data/ec2_prices.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from orchestrator.catalog import chips
from orchestrator.catalog.chips import NO_CHIP, split_count
from orchestrator.catalog.choosing import NotRentedError, rank_by_price
from orchestrator.catalog.machines import Ec2Instance, Machine
from orchestrator.catalog.prices import Price, describe_price, list_refreshed_regions, list_region_markets
from orchestrator.catalog.tables import Row, read_rows
from orchestrator.errors import UserError
from orchestrator.slices import Market

PROVIDER = "aws"


def find_instance(name: str) -> Ec2Instance | None:
    """Return the instance type called `name`, or the cheapest that NAME:COUNT means; None for another name.

    Raises:
        UserError: The chip is known, and no instance type has it; or orch does not serve the type.
    """
    requested = name.strip()
    if (unserved := _explain_unserved(requested)) is not None:
        raise unserved
    instance = load_instances().get(requested.lower())
    if instance is not None:
        return instance if requested == instance.name else replace(instance, normalised_from=requested)
    split = split_count(requested)
    if split is None:
        return None
    chip, count = split
    fitting = [one for one in load_instances().values() if (one.chip, one.chips) == (chip.name, count)]
    if not fitting and not any(one.chip == chip.name for one in load_instances().values()):
        why = "orch knows the chip, but no type that has it"
        raise UserError(f"`{requested}` names no EC2 instance type", why, "name the type itself instead of the chip")
    if not fitting:
        return None
    return replace(min(fitting, key=rank_by_price), normalised_from=requested)


def _explain_unserved(name: str) -> NotRentedError | None:
    """Return why orch does not serve a machine of EC2 that exists, or None.

    Sources: "UltraServers" and "Capacity Blocks for ML", EC2 User Guide, and DescribeCapacityBlockOfferings, EC2 API
    reference (UltraserverType; read November 2026); "Amazon EC2 G5g instances" (Graviton2); DLAMI release notes of
    9 October 2026 (images for ARM: G5g, P6e-GB200, P6e-GB300). PyTorch's CUDA packages for ARM have kernels for compute
    capability 8.0 and later (pytorch/pytorch, .ci/aarch64_linux/aarch64_ci_build.sh and pull request 161257, 2025);
    that of T4G is 7.5 (NVIDIA, "CUDA GPUs").
    """
    if _ULTRASERVER.fullmatch(name.lower()):
        return NotRentedError(
            f"orch does not serve `{name}`",
            "AWS sells it as UltraServers in Capacity Blocks, by UltraserverType, and its processors are ARM",
            "B200:8 has the nearest GPUs; or trn2u.48xlarge, single",
        )
    if _ARM_GPU.fullmatch(name.lower()):
        return NotRentedError(
            f"orch does not serve `{name}`",
            "AWS has images for its ARM processors, but PyTorch's packages for ARM have no kernels for its GPU, T4G",
            "use T4:1, which has the nearest GPU",
        )
    return _explain_ended(name)


def _explain_ended(name: str) -> NotRentedError | None:
    """Return that AWS has ended the family of a type or the last one with a chip, or None."""
    family, dot, _ = name.lower().partition(".")
    chip, _, count = name.lower().partition(":")
    for row in read_rows("ec2", "ended"):
        chips_of = {one.lower() for one in row.texts("chips")}
        if (family == row.text("family") and dot) or chip in chips_of:
            known = {one.chips for one in load_instances().values() if one.chip == row.text("nearest")}
            nearest = f"{row.text('nearest')}:{count if count.isdigit() and int(count) in known else 1}"
            return NotRentedError(
                f"orch does not serve `{name}`",
                f"AWS ended its {row.text('family')} types ({', '.join(row.texts('chips'))}) in {row.text('ended')}",
                f"use {nearest}, which has the nearest GPU",
            )
    return None


_ULTRASERVER = re.compile(r"u-p6e-gb\d+x\d+|u-trn2x?\d+|p6e-gb\d+\.\d+xlarge|gb[23]00(?::\d+)?")
_ARM_GPU = re.compile(r"g5g\.[a-z0-9]+|t4g(?::\d+)?")


def make_unlisted_type(name: str) -> Ec2Instance | None:
    """Return a type that the table does not have, known by its name alone, because new ones come often.

    None for a word that is not the name of a type, and for a type that orch does not serve.
    """
    requested = name.strip().lower()
    if not _ACCELERATED.fullmatch(requested) or _explain_unserved(requested) is not None:
        return None
    neuron = requested.startswith(("trn", "inf"))
    return Ec2Instance(
        name=requested,
        hosts=1,
        chips_per_host=0,
        cores_per_chip=0,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("neuron", "xla", "jax") if neuron else ("cuda",),
        chip="",
        provider=PROVIDER,
        is_instance_type=True,
        device="neuron" if neuron else "cuda",
        without_torch_neuron=requested.startswith(("trn1", "inf")),
        logical_cores_per_chip=0,
        vcpus=0,
        ram_gib=0,
        local_nvme="",
        network_gbps=0,
        network_cards=1,
        efa_max=0,
        efa_on_card0=False,
        enis_per_card=1,
        on_demand=True,
        capacity_block=True,
        regions=(),
        listed=False,
    )


# Families with accelerators and the sizes that types have (EC2 documentation, "Instance type naming", 2026).
_ACCELERATED = re.compile(r"(?:p|g|gr|trn|inf)\d[a-z0-9-]*\.(?:\d*xlarge|large|metal(?:-\d+xl)?)")


@cache
def load_instances() -> dict[str, Ec2Instance]:
    """Return the instance types of the table by name."""
    rows = [row for listed in read_rows("ec2", "instance") for row in listed.expand("sizes")]
    return {instance.name: instance for instance in map(_instance, rows)}


def list_machines() -> tuple[Ec2Instance, ...]:
    """Return all types of the table."""
    return tuple(load_instances().values())


def list_common_names() -> tuple[str, ...]:
    """Return names for suggestions: NAME:COUNT, and every type."""
    counts = dict.fromkeys(f"{one.chip}:{one.chips}" for one in list_machines() if one.chip)
    return (*counts, *load_instances())


def find_price(machine: Machine, market: str, region: str) -> Price | None:
    """Return the price of a type in a market, by the words of the table; None when it is not known."""
    for row in list_price_rows(machine.name, market):
        if region and region not in row.texts("regions"):
            continue
        where = region or " or ".join(row.texts("regions"))
        return Price(
            low=row.number("usd"),
            high=row.number("usd_high"),
            note=f"{describe_price(market)}, {where}",
            as_of=row.text("as_of"),
            source=row.text("source"),
            region=region,
        )
    return None


def priced_regions(instance: Ec2Instance, market: Market) -> frozenset[str]:
    """Return the regions with a known price; for a contract market those of on demand."""
    return list_refreshed_regions(instance, market) | {
        region
        for word in list_region_markets(market)
        for row in list_price_rows(instance.name, word)
        for region in row.texts("regions")
    }


@cache
def list_price_rows(name: str, market: str) -> tuple[Row, ...]:
    """Return the prices of a type in a market, with the keys `regions`, `usd` and `usd_high`; us-east-1 first."""
    return tuple(_read_prices(name, market))


def _read_prices(name: str, market: str) -> Iterator[Row]:
    family, in_us_east_1 = name.partition(".")[0], 0.0
    for row in read_rows("ec2_prices", "price"):
        if row.text("market") != market:
            continue
        if "usd_of" in row.cells:
            amounts = row.amounts("usd_of")
            if name in amounts:
                in_us_east_1 = amounts[name]
                yield _with_price(row, amounts[name])
        elif "ratio_in" in row.cells:
            if in_us_east_1 and row.text("family") == family:
                yield from _split_regions(row, row.amounts("ratio_in"), in_us_east_1)
        elif row.text("instance") == name:
            yield from _split_regions(row, row.amounts("usd_in")) if "usd_in" in row.cells else (row,)


def _split_regions(row: Row, amounts: Mapping[str, float], unit: float = 1) -> Iterator[Row]:
    """Yield a row for each region, with its amount times `unit` as the price."""
    for region, amount in amounts.items():
        yield _with_price(replace(row, cells={**row.cells, "regions": [region]}), round(amount * unit, 5))


def _with_price(row: Row, usd: float) -> Row:
    return replace(row, cells={**row.cells, "usd": usd, "usd_high": usd})


def _instance(row: Row) -> Ec2Instance:
    name = f"{row.text('name')}.{row.text('size')}" if "size" in row.cells else row.text("name")
    chip = chips.load_chips()[row.text("chip").lower()] if row.text("chip") else NO_CHIP
    return Ec2Instance(
        name=name,
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
        without_torch_neuron=chip.without_torch_neuron,
        devices_per_chip=chip.devices,
        logical_cores_per_chip=chip.logical_cores,
        vcpus=row.whole("vcpus"),
        ram_gib=row.whole("ram_gib"),
        local_nvme=row.text("local_nvme"),
        network_gbps=row.number("network_gbps"),
        network_cards=row.whole("network_cards"),
        efa_max=row.whole("efa_max"),
        efa_on_card0=row.flag("efa_on_card0"),
        enis_per_card=row.whole("enis_per_card"),
        on_demand=row.flag("on_demand"),
        capacity_block=row.flag("capacity_block"),
        regions=row.texts("regions"),
        all_reduce_gbs=row.number("all_reduce_gbs") if "all_reduce_gbs" in row.cells else 0,
    )
