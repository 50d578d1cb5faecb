"""TPU generations, zones and quotas as the simulated Google states them, from `data/tpu.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from orch_fronts.tables import read_table

_FILE = "google/data/tpu.toml"
_CHIPS_PER_VM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """TPU generation; see the head of the file for its fields."""

    name: str
    prefix: str
    api: str
    counts: str
    cores_per_chip: int
    sizes: tuple[int, ...]
    single: tuple[int, ...]
    dimensions: int
    runtime: str
    zones: tuple[str, ...]
    source: str
    date: str
    multiples: int = 0
    largest: int = 0
    tenant_zones: tuple[str, ...] = ()
    machine_types: Mapping[str, int] = field(default_factory=dict[str, int])

    def has(self, size: int) -> bool:
        beyond = bool(self.multiples) and self.sizes[-1] < size <= self.largest and size % self.multiples == 0
        return size in self.sizes or beyond

    def is_in(self, zone: str) -> bool:
        return zone in self.zones or zone in self.tenant_zones


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Slice of an accelerator type.

    Attributes:
        size: Number in its name, which is what quotas count.
    """

    name: str
    generation: str
    size: int
    chips: int
    hosts: int
    chips_per_host: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuQuota:
    """Quota of the Cloud TPU API in each zone.

    Attributes:
        sizes: That count against it; none for those that no other quota names.
        value: Of a new project.
    """

    id: str
    metric: str
    generation: str
    market: str
    value: int
    source: str
    date: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionalQuota:
    """Quota of Compute Engine in each region.

    Attributes:
        value: Of a new project.
        everywhere: Whether it holds for all regions together.
    """

    id: str
    metric: str
    value: int
    source: str
    date: str
    everywhere: bool = False


@cache
def generations() -> Mapping[str, Generation]:
    return {row["name"]: Generation(**_frozen(row)) for row in read_table(_FILE)["generation"]}


@cache
def tpu_quotas() -> tuple[TpuQuota, ...]:
    return tuple(TpuQuota(**_frozen(row)) for row in read_table(_FILE)["quota"])


@cache
def regional_quotas() -> Mapping[str, RegionalQuota]:
    return {row["id"]: RegionalQuota(**row) for row in read_table(_FILE)["regional"]}


@cache
def closed_zones() -> frozenset[str]:
    """Return the zones that only projects with a grant may use."""
    return frozenset(row["zone"] for row in read_table(_FILE)["closed"])


@cache
def all_zones() -> frozenset[str]:
    return frozenset(zone for one in generations().values() for zone in (*one.zones, *one.tenant_zones))


def find_slice(name: str) -> Slice | None:
    """Return the slice of an accelerator type, None for a name that is none."""
    prefix, _, size = name.rpartition("-")
    found = next((one for one in generations().values() if one.prefix == prefix), None)
    if found is None or not size.isdecimal() or not found.has(int(size)):
        return None
    return slice_of(found, int(size))


def slice_of(generation: Generation, size: int) -> Slice:
    chips = size // generation.cores_per_chip if generation.counts == "cores" else size
    per_host = chips if size in generation.single else _CHIPS_PER_VM
    return Slice(
        name=f"{generation.prefix}-{size}",
        generation=generation.name,
        size=size,
        chips=chips,
        hosts=chips // per_host,
        chips_per_host=per_host,
    )


def quota_of(generation: str, size: int, market: str) -> TpuQuota | None:
    """Return what a slice counts against; None where no quota is known."""
    fitting = [one for one in tpu_quotas() if one.generation == generation and one.market in (market, "*")]
    named = next((one for one in fitting if size in one.sizes), None)
    return named or next((one for one in fitting if not one.sizes), None)


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(cast(Sequence[Any], one)) if isinstance(one, list) else one for key, one in row.items()}
