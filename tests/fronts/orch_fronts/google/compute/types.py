"""Machine types without TPUs, and the zones that sell them: what machineTypes.list answers.

Names, vCPUs and memory are those of the dump of the Compute Engine API in
Cyclenerd/google-cloud-pricing-cost-calculator (tools/machinetypes.csv, May 2023); the zones are those of its lists of
machine types and accelerators (machinetypezone.csv, acceleratortypezone.csv), with those of 2026 that are newer. It is
written apart from the catalogue, so that an error in one of them shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class PlainType:
    """gpus: attached by the type itself, of the kind `gpu`; 0 and "" for none."""

    name: str
    vcpus: int
    memory_mb: int
    gpus: int = 0
    gpu: str = ""


_GENERAL = {"us-central1": "abcf", "us-east1": "bcd", "us-west1": "abc", "us-east5": "abc", "europe-west4": "abc"}
_G2 = {"us-central1": "abc", "us-east1": "bcd", "us-west1": "abc", "us-east4": "ac", "europe-west4": "abc"}
_A2 = {"us-central1": "abcf", "us-east1": "b", "us-west1": "b", "us-west3": "b", "us-west4": "b", "europe-west4": "ab"}
_MEGA = {"us-central1": "abcf", "europe-west4": "ab"}
_ULTRA = {"us-central1": "ac", "us-east4": "c", "us-east5": "ab", "europe-west4": "a"}
_ZONES = {"e2-": _GENERAL, "n2-": _GENERAL, "g2-": _G2, "a2-h": _A2, "a2-m": _MEGA, "a2-u": _ULTRA}
_GIB = 1024


@cache
def plain_types() -> Mapping[str, PlainType]:
    return {one.name: one for one in _list_types()}


def zones_of(name: str) -> frozenset[str]:
    """Where the type is sold."""
    regions = next(regions for prefix, regions in _ZONES.items() if name.startswith(prefix))
    return frozenset(f"{region}-{letter}" for region, letters in regions.items() for letter in letters)


def all_zones() -> frozenset[str]:
    return frozenset(zone for name in plain_types() for zone in zones_of(name))


def _list_types() -> Iterator[PlainType]:
    small, large = (2, 4, 8, 16, 32), (48, 64, 80, 96)
    for series, shape, sizes, gib in (
        ("e2", "highcpu", small, 1),
        ("e2", "standard", small, 4),
        ("e2", "highmem", small[:4], 8),
        ("n2", "highcpu", small + large, 1),
        ("n2", "standard", (*small, *large, 128), 4),
        ("n2", "highmem", small + large, 8),
    ):
        yield from (PlainType(f"{series}-{shape}-{size}", size, size * gib * _GIB) for size in sizes)
    yield PlainType("n2-highmem-128", 128, 884736)
    for size, gpus in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8)):
        yield PlainType(f"g2-standard-{size}", size, size * 4 * _GIB, gpus, "nvidia-l4")
    for gpus in (1, 2, 4, 8):
        yield PlainType(f"a2-highgpu-{gpus}g", 12 * gpus, 85 * gpus * _GIB, gpus, "nvidia-tesla-a100")
        yield PlainType(f"a2-ultragpu-{gpus}g", 12 * gpus, 170 * gpus * _GIB, gpus, "nvidia-a100-80gb")
    yield PlainType("a2-megagpu-16g", 96, 1360 * _GIB, 16, "nvidia-tesla-a100")
