"""The one table of the memory that programs can use on a device, for plans, for compilers and for `remat=auto`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainer.accelerators.device import Device, Kind
from trainer.accelerators.tpu_generations import GENERATIONS

_GIB = 1 << 30
# By the names of the catalogue (v5e) and of devices (TPU v5e), as libtpu reports it.
_TPU_GIB: Mapping[str, float] = MappingProxyType(
    {name: each.usable_gib for each in GENERATIONS if each.usable_gib is not None for name in (each.name, each.device)}
)
# Others. CUDA: context, NCCL's buffers and the allocator's losses take about 6 %. Neuron's runtime: not published.
_SHARE: Mapping[Kind, float] = MappingProxyType({"tpu": 0.97, "cuda": 0.94, "neuron": 0.94, "cpu": 0.9})


def get_usable_share(kind: Kind) -> float:
    """Return the share of a device's memory that a program can use, where nothing more exact is published."""
    return _SHARE[kind]


def find_usable_bytes(kind: Kind, name: str, total: int | None) -> int | None:
    """Return the bytes of one device that a program can use; None when that is unknown.

    Args:
        kind: Family of the device.
        name: Of the chip or of the device.
        total: Bytes of the device's memory; None when unknown.
    """
    if (known := _TPU_GIB.get(name)) is not None:
        return int(known * _GIB)
    return None if total is None else int(total * _SHARE[kind])


def find_usable_share(device: Device, sharers: int = 1) -> int | None:
    """Return the usable bytes of one of a chip's devices, or of one of the ranks that share a processor's memory."""
    if device.total_mem_mb is None:
        return find_usable_bytes(device.kind, device.name, None)
    return find_usable_bytes(device.kind, device.name, (device.total_mem_mb << 20) // (device.devices * sharers))
