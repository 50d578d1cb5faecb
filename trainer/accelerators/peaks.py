"""Published peak arithmetic of devices in bf16, for model FLOP utilisation: dense, without sparsity.

A device that is not listed has no MFU rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.device import Device
from trainer.config import DTypeName

_TITAN = "torchtitan, tools/utils.py, which quotes the makers' data sheets"
_EC2 = "AWS, EC2 Trn1 and Trn2 instance pages; per chip"


@dataclass(frozen=True, slots=True)
class Peak:
    """flops: FLOP/s of a whole chip in bf16. source, as_of: where it was read, and when."""

    flops: float
    source: str
    as_of: str


PEAKS: Mapping[str, Peak] = MappingProxyType(
    {
        "NVIDIA A100": Peak(312e12, _TITAN, "2026-08"),
        "NVIDIA H100 80GB HBM3": Peak(989e12, _TITAN, "2026-08"),
        "NVIDIA H200": Peak(989e12, _TITAN, "2026-08"),
        "NVIDIA B200": Peak(2250e12, _TITAN, "2026-08"),
        "TPU v4": Peak(275e12, _TITAN, "2026-08"),
        "TPU v5e": Peak(197e12, _TITAN, "2026-08"),
        "TPU v5p": Peak(459e12, _TITAN, "2026-08"),
        "TPU v6e": Peak(918e12, _TITAN, "2026-08"),
        "TPU v7": Peak(2307e12, "Google, TPU7x page", "2026-10"),
        "AWS Trainium1": Peak(190e12, _EC2, "2026-10"),
        "AWS Trainium2": Peak(667e12, _EC2, "2026-10"),
    }
)


def peak_flops(device: Device, dtype: DTypeName) -> float | None:
    """FLOP/s of one device as a framework sees it: a chip's peak over the devices that it is.

    fp16 is computed in bf16. For fp32 there is no published peak that a training step could reach.
    """
    if dtype == "fp32":
        return None
    peak = next((peak for name, peak in PEAKS.items() if device.name.startswith(name)), None)
    return peak.flops / device.devices if peak else None
