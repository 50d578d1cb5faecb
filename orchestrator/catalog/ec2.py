"""EC2 instance types with accelerators, and the chips in them (data/ec2.toml, data/chips.toml)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from orchestrator.catalog.machines import Ec2Instance, OwnDevices
from orchestrator.catalog.tables import Row, rows
from orchestrator.errors import UserError


def find_instance(name: str) -> Ec2Instance | None:
    """The instance type called `name`, or the one meant by NAME:COUNT; None when it is neither.

    Raises UserError when the chip exists and no instance type has that many.
    """
    asked = name.strip()
    instance = instances().get(asked.lower())
    if instance is not None:
        return instance if asked == instance.name else replace(instance, normalised_from=asked)
    split = _split(asked)
    if split is None:
        return None
    chip, count = split
    meant = _aliases().get((chip.name, count))
    if meant is None:
        raise _no_such_count(chip, count, asked)
    return replace(instances()[meant], normalised_from=asked)


def unlisted(name: str) -> Ec2Instance | None:
    """A type that this table does not have, by its name alone: new ones come often. None for what is no such name."""
    asked = name.strip().lower()
    if not _ACCELERATED.fullmatch(asked):
        return None
    neuron = asked.startswith(("trn", "inf"))
    return Ec2Instance(
        name=asked,
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
    """NAME:COUNT as devices in a machine of the user's own; None when the chip is not known."""
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


@dataclass(frozen=True, slots=True)
class Chip:
    name: str
    vendor: str
    hbm_gib: float
    peak_bf16_tflops: float
    cores: int
    logical_cores: int
    backends: tuple[str, ...]


@cache
def chips() -> dict[str, Chip]:
    """By lower-case name."""
    return {row.text("name").lower(): _chip(row) for row in rows("chips", "chip")}


@cache
def instances() -> dict[str, Ec2Instance]:
    return {row.text("name"): _instance(row) for row in rows("ec2", "instance")}


def common_names() -> tuple[str, ...]:
    """Names for suggestions: NAME:COUNT, the type behind it, and every other type."""
    return (*(f"{chip}:{count}" for chip, count in _aliases()), *instances())


@cache
def _aliases() -> dict[tuple[str, int], str]:
    split = [(row.text("name").rpartition(":"), row.text("instance")) for row in rows("ec2", "alias")]
    return {(name, int(count)): instance for (name, _, count), instance in split}


def _split(name: str) -> tuple[Chip, int] | None:
    """`H100:8` as chip and count; a name alone means one."""
    chip_name, _, count = name.partition(":")
    chip = chips().get(chip_name.strip().lower())
    count = count.strip() or "1"
    if chip is None or not count.isascii() or not count.isdigit() or not 0 < int(count[:7]) < 1_000_000:
        return None
    return chip, int(count[:7])


def _no_such_count(chip: Chip, count: int, asked: str) -> UserError:
    offered = sorted(n for name, n in _aliases() if name == chip.name)
    if not offered:
        why = "orch knows the chip, but no type that has it"
        return UserError(f"`{asked}` names no EC2 instance type", why, "name the type itself instead of the chip")
    names = " or ".join(f"{chip.name}:{n}" for n in offered)
    largest = offered[-1]
    several = count > largest and count % largest == 0
    return UserError(
        f"no EC2 instance type has {count} {chip.name}",
        f"`{asked}`: one instance has {' or '.join(str(n) for n in offered)}",
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
    chip = chips()[row.text("chip").lower()]
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
