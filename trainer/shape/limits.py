"""Constants that the engines use and the advice must know, one value for all engines."""

from __future__ import annotations

from typing import Final

from trainer.config import ModelConfig
from trainer.errors import ConfigError

LOGITS_BYTES: Final = 256 << 20
"""Most bytes of fp32 logits on one device at a time; the loss of a larger micro-batch is computed in chunks."""

SCAN_FROM: Final = 8
"""Number of layers from which JAX scans stacked weights on an accelerator: one compiled block, not many."""

SCAN_FROM_CPU: Final = 33
"""The same on a CPU, where a scanned step is a third slower than an unrolled one."""

EXPERT_STEP: Final = 8
"""Sizes of experts are multiples of it: torch's grouped product needs rows of 16 bytes, in bf16 eight numbers."""


def refuse_experts(model: ModelConfig, device: str) -> None:
    """Refuse experts on devices whose grouped products were never tried.

    Raises:
        ConfigError: The model has experts.
    """
    if model.experts:
        raise ConfigError(
            f"model.experts={model.experts}: {device} has no mixture of experts: use model.experts=0, torch on CPUs "
            "and NVIDIA GPUs, or JAX on these and on TPUs"
        )
