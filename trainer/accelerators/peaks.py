"""Published peak arithmetic of devices in bf16, for model FLOP utilisation.

Source: the peak table of torchtitan's tools/utils.py (snapshot August 2026), which quotes the makers' data sheets;
dense, without sparsity. A device that is not listed has no MFU rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainer.config import DTypeName

_BF16: Mapping[str, float] = MappingProxyType(
    {
        "NVIDIA A100": 312e12,
        "NVIDIA H100 80GB HBM3": 989e12,
        "NVIDIA H200": 989e12,
        "TPU v4": 275e12,
        "TPU v5e": 197e12,
        "TPU v5p": 459e12,
        "TPU v6e": 918e12,
        "TPU v7": 1153e12,  # of one of the two devices of a chip
    }
)


def peak_flops(name: str, dtype: DTypeName) -> float | None:
    """FLOP/s of one device, by the beginning of its name."""
    if dtype != "bf16":
        return None
    return next((peak for known, peak in _BF16.items() if name.startswith(known)), None)
