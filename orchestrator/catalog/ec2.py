"""EC2 instance types with accelerators, and the chips in them (data/ec2.toml, data/chips.toml)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from orchestrator.catalog.machines import Ec2Instance, OwnDevices
from orchestrator.catalog.tables import Row, read_rows
from orchestrator.errors import UserError


def find_instance(name: str) -> Ec2Instance | None:
    """Return the instance type called `name`, or the one that NAME:COUNT means; None for another name.

    Raises:
        UserError: The chip exists, and no instance type has that many.
    """
    requested = name.strip()
    instance = load_instances().get(requested.lower())
    if instance is not None:
        return instance if requested == instance.name else replace(instance, normalised_from=requested)
    split = _split(requested)
    if split is None:
        return None
    chip, count = split
    meant = _aliases().get((chip.name, count))
    if meant is None:
        raise _no_such_count(chip, count, requested)
    return replace(load_instances()[meant], normalised_from=requested)


def make_unlisted_type(name: str) -> Ec2Instance | None:
    """Return a type that the table does not have, known by its name alone, because new ones come often.

    None for a word that is not the name of a type.
    """
    requested = name.strip().lower()
    if not _ACCELERATED.fullmatch(requested):
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


def find_devices(name: str) -> OwnDevices | None:
    """Return NAME:COUNT as devices in one of the user's own machines; None when the chip is not known."""
    split = _split(name.strip())
    if split is None:
        return None
    chip, count = split
    canonical = f"{chip.name}:{count}"
    return OwnDevices(
        name=canonical,
        hosts=1,
        chips_per_host=count,
        cores_per_chip=chip.cores,
        hbm_gib_per_chip=chip.hbm_gib,
        peak_bf16_tflops_per_chip=chip.peak_bf16_tflops,
        backends=chip.backends,
        normalised_from=None if name.strip() == canonical else name.strip(),
        chip=chip.name,
    )


# Families with accelerators and the sizes that types have (EC2 documentation, "Instance type naming", 2026).
_ACCELERATED = re.compile(r"(?:p|g|gr|trn|inf)\d[a-z0-9-]*\.(?:\d*xlarge|large|metal(?:-\d+xl)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    name: str
    vendor: str
    hbm_gib: float
    peak_bf16_tflops: float
    cores: int
    logical_cores: int
    backends: tuple[str, ...]


@cache
def load_chips() -> dict[str, Chip]:
    """Return the chips by lower-case name."""
    return {row.text("name").lower(): _chip(row) for row in read_rows("chips", "chip")}


@cache
def load_instances() -> dict[str, Ec2Instance]:
    """Return the instance types of the table by name."""
    return {row.text("name"): _instance(row) for row in read_rows("ec2", "instance")}


def list_common_names() -> tuple[str, ...]:
    """Return names for suggestions: NAME:COUNT, the type behind it, and every other type."""
    return (*(f"{chip}:{count}" for chip, count in _aliases()), *load_instances())


@cache
def _aliases() -> dict[tuple[str, int], str]:
    split = [(row.text("name").rpartition(":"), row.text("instance")) for row in read_rows("ec2", "alias")]
    return {(name, int(count)): instance for (name, _, count), instance in split}


def _split(name: str) -> tuple[Chip, int] | None:
    """Split `H100:8` into chip and count; a name alone means one."""
    chip_name, _, count = name.partition(":")
    chip = load_chips().get(chip_name.strip().lower())
    count = count.strip() or "1"
    if chip is None or not count.isascii() or not count.isdigit() or not 0 < int(count[:7]) < 1_000_000:
        return None
    return chip, int(count[:7])


def _no_such_count(chip: Chip, count: int, requested: str) -> UserError:
    offered = sorted(n for name, n in _aliases() if name == chip.name)
    if not offered:
        why = "orch knows the chip, but no type that has it"
        return UserError(f"`{requested}` names no EC2 instance type", why, "name the type itself instead of the chip")
    names = " or ".join(f"{chip.name}:{n}" for n in offered)
    largest = offered[-1]
    several = count > largest and count % largest == 0
    return UserError(
        f"no EC2 instance type has {count} {chip.name}",
        f"`{requested}`: one instance has {' or '.join(str(n) for n in offered)}",
        f"use {chip.name}:{largest} with num_nodes: {count // largest}" if several else f"use {names}",
    )


def _chip(row: Row) -> Chip:
    return Chip(
        name=row.text("name"),
        vendor=row.text("vendor"),
        hbm_gib=row.number("hbm_gib"),
        peak_bf16_tflops=row.number("peak_bf16_tflops"),
        cores=row.whole("cores"),
        logical_cores=row.whole("logical_cores"),
        backends=row.texts("backends"),
    )


def _instance(row: Row) -> Ec2Instance:
    chip = load_chips()[row.text("chip").lower()]
    return Ec2Instance(
        name=row.text("name"),
        hosts=1,
        chips_per_host=row.whole("chips"),
        cores_per_chip=chip.cores,
        hbm_gib_per_chip=chip.hbm_gib,
        peak_bf16_tflops_per_chip=chip.peak_bf16_tflops,
        backends=chip.backends,
        chip=chip.name,
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
    )
