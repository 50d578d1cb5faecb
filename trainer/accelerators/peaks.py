"""Published peak arithmetic of devices in bf16, for model FLOP utilisation: dense, without sparsity.

A device that is not listed has no MFU, which is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.device import Device
from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import DTypeName

_TITAN = "torchtitan, tools/utils.py, which quotes the makers' data sheets"
_NEURON = "AWS Neuron documentation, architecture of Trainium, Trainium2 and Trainium3; per chip"


@dataclass(frozen=True, slots=True)
class Peak:
    """A published peak.

    Attributes:
        flops: FLOP/s of a whole chip in bf16.
        source: Where it is published.
        as_of: When it was read.
    """

    flops: float
    source: str
    as_of: str


PEAKS: Mapping[str, Peak] = MappingProxyType(
    {
        "NVIDIA A100": Peak(312e12, _TITAN, "2026-08"),
        "NVIDIA A100 80GB PCIe": Peak(312e12, _TITAN, "2026-08"),
        "NVIDIA H100 80GB HBM3": Peak(989e12, _TITAN, "2026-08"),
        "NVIDIA H100 NVL": Peak(835e12, _TITAN, "2026-11"),
        "NVIDIA H100 PCIe": Peak(756e12, _TITAN, "2026-11"),
        "NVIDIA H200": Peak(989e12, _TITAN, "2026-08"),
        "NVIDIA B200": Peak(2250e12, _TITAN, "2026-08"),
        "NVIDIA B300 SXM6 AC": Peak(2250e12, _TITAN, "2026-08"),
        "NVIDIA L40S": Peak(362e12, _TITAN, "2026-11"),
        "NVIDIA L4": Peak(121e12, "NVIDIA L4 data sheet: 242 with sparsity, half of it dense", "2026-11"),
        "NVIDIA A10G": Peak(70e12, "NVIDIA A10G data sheet for Amazon EC2 G5, dense", "2026-11"),
        **{each.device: Peak(each.peak_flops, each.peak_source, "2026-11") for each in GENERATIONS},
        "AWS Trainium1": Peak(190e12, _NEURON, "2026-08"),
        "AWS Trainium2": Peak(667e12, _NEURON, "2026-08"),
        "AWS Trainium3": Peak(671e12, _NEURON, "2026-08"),
    }
)


def find_peak_flops(device: Device, dtype: DTypeName) -> float | None:
    """Return the FLOP/s of one device as a framework sees it: a chip's peak over its devices.

    For fp32 there is no published peak that a training step could reach.
    """
    if dtype == "fp32" or " MIG " in device.name:
        return None
    # "NVIDIA A100-SXM4-40GB" is an A100; "NVIDIA H200 NVL", and a part of a GPU (MIG), are slower than an H200.
    peak = PEAKS.get(device.name) or PEAKS.get(device.name.partition("-")[0])
    return peak.flops / device.devices if peak else None
