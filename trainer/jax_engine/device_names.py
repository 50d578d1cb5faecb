"""The names in our tables of JAX's devices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainer.accelerators.device import Device, Kind
from trainer.accelerators.peaks import find_peak_flops
from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import DTypeName

_DEVICES_OF_A_CHIP: Mapping[str, int] = MappingProxyType({each.device: each.devices for each in GENERATIONS})
_TPUS: Mapping[str, str] = MappingProxyType({kind: each.device for each in GENERATIONS for kind in each.jax_kinds})


def get_device_name(device: Any) -> str:
    """Return the name in trainer/accelerators/peaks.py; an unlisted device keeps its own name."""
    kind = str(device.device_kind)
    return _TPUS.get(kind, kind)


def get_peak_flops(device: Any, dtype: DTypeName) -> float | None:
    """Return the FLOP/s of one of JAX's devices; None when it is not listed."""
    name = get_device_name(device)
    if not name.startswith(("TPU", "NVIDIA", "AWS")):
        return None
    kind: Kind = "tpu" if name.startswith("TPU") else "cuda" if name.startswith("NVIDIA") else "neuron"
    described = Device(
        kind=kind,
        name=name,
        vendor="",
        index=0,
        total_mem_mb=None,
        available_mem_mb=None,
        topology=None,
        devices=_DEVICES_OF_A_CHIP.get(name, 1),
    )
    return find_peak_flops(described, dtype)
