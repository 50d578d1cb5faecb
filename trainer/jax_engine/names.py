"""What JAX calls a device, in the words that our tables use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainer.accelerators.device import Device, Kind
from trainer.accelerators.peaks import peak_flops
from trainer.config import DTypeName

_DEVICES_OF_A_CHIP: Mapping[str, int] = MappingProxyType({"TPU v2": 2, "TPU v3": 2, "TPU v7": 2})

# Left: `device_kind` as libtpu 0.0.42 and later give it, seen in topology descriptions.
_TPUS: Mapping[str, str] = MappingProxyType(
    {
        "TPU v2": "TPU v2",
        "TPU v3": "TPU v3",
        "TPU v4": "TPU v4",
        "TPU v5 lite": "TPU v5e",
        "TPU v5": "TPU v5p",
        "TPU v5p": "TPU v5p",
        "TPU v6 lite": "TPU v6e",
        "TPU7x": "TPU v7",
        "TPU v7x": "TPU v7",
    }
)


def device_name(device: Any) -> str:
    """As in trainer/accelerators/peaks.py; a device that it does not list keeps its own name."""
    kind = str(device.device_kind)
    return _TPUS.get(kind, kind)


def peak_of(device: Any, dtype: DTypeName) -> float | None:
    """FLOP/s of one of JAX's devices; None when no table has it."""
    name = device_name(device)
    if not name.startswith(("TPU", "NVIDIA", "AWS")):
        return None
    kind: Kind = "tpu" if name.startswith("TPU") else "cuda" if name.startswith("NVIDIA") else "neuron"
    described = Device(kind, name, "", 0, None, None, None, devices=_DEVICES_OF_A_CHIP.get(name, 1))
    return peak_flops(described, dtype)
