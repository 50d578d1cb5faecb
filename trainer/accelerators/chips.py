"""Published figures of a chip's devices by its name in the catalogue, for advice on machines described by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.peaks import PEAKS
from trainer.accelerators.tpu_generations import GENERATIONS

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipFigures:
    """Of one device as a program sees it.

    Attributes:
        peak_flops: Dense bf16 FLOP/s.
        memory_bytes: Of its memory.
    """

    peak_flops: float
    memory_bytes: int


# Name in the table of peaks and GiB of each GPU (orchestrator/catalog/data/chips.toml has the sources of the memory).
_GPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "A10G": ("NVIDIA A10G", 22),
        "L4": ("NVIDIA L4", 22),
        "L40S": ("NVIDIA L40S", 44),
        "A100": ("NVIDIA A100", 40),
        "A100-80GB": ("NVIDIA A100", 80),
        "H100": ("NVIDIA H100 80GB HBM3", 80),
        "H200": ("NVIDIA H200", 141),
        "B200": ("NVIDIA B200", 179),
        "B300": ("NVIDIA B300 SXM6 AC", 268),
    }
)
CHIPS: Mapping[str, ChipFigures] = MappingProxyType(
    {
        **{
            name: ChipFigures(peak_flops=PEAKS[device].flops, memory_bytes=gib * _GIB)
            for name, (device, gib) in _GPUS.items()
        },
        **{
            each.name: ChipFigures(
                peak_flops=each.peak_flops / each.devices, memory_bytes=each.memory_gib * _GIB // each.devices
            )
            for each in GENERATIONS
        },
    }
)
