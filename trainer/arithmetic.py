"""Resolves `auto` of the settings that decide how a device computes: fast, and with the same learning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainer.config import Config
from trainer.errors import ConfigError

# GPUs before Ampere, as nvidia-smi names them (NVIDIA, "CUDA GPU Compute Capability", November 2026).
_BEFORE_AMPERE = ("Tesla ", "Quadro ", "TITAN ", "GeForce GTX ", "GeForce RTX 20")


def resolve_arithmetic(config: Config, kind: str, *, has_bf16: bool = True) -> Config:
    """Resolve `dtype=auto` and `compile=auto`.

    Args:
        config: With `engine` resolved.
        kind: cpu, cuda, tpu, neuron or xla.
        has_bf16: Whether the device multiplies in bf16.

    Raises:
        ConfigError: The residual stream would have fewer digits than the products.
    """
    dtype = config.dtype
    if dtype == "auto":
        dtype = "bf16" if kind != "cpu" and has_bf16 else "fp32"
    if config.residual == "bf16" and dtype == "fp32":
        raise ConfigError("residual=bf16 with products in fp32 rounds their results away: dtype=bf16, or residual=fp32")
    compile_ = config.compile
    if compile_ == "auto":
        compile_ = "true" if kind == "cuda" and config.engine != "jax" else "false"
    return replace(config, dtype=dtype, compile=compile_)


def multiplies_in_bf16(gpus: Iterable[str]) -> bool:
    """Return whether all GPUs of these names have products in bf16."""
    return not any(name.removeprefix("NVIDIA ").startswith(_BEFORE_AMPERE) for name in gpus)
