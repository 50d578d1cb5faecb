"""Products of blocks in float8: which runs can have them.

torchao makes them on a GPU: operands are scaled, by the largest value of each tensor or of each of its rows, and
multiplied in 8 bits. Weights, sums and everything outside the blocks stay as they are. (Micikevicius et al. 2022, "FP8
Formats for Deep Learning", arXiv 2209.05433)
"""

from __future__ import annotations

from trainer.config import Config
from trainer.errors import ConfigError

_CHIPS = {"L4", "L40S", "H100", "H200", "B200", "B300", "GB200", "GB300"}
"""GPUs with products in float8: Ada, Hopper and Blackwell (NVIDIA, "CUDA GPU Compute Capability", November 2026)."""
MULTIPLE = 16
"""Both sizes of a matrix are multiples of it (cuBLASLt, "Data Types", FP8: CUDA 13 documentation)."""


def refuse_float8(config: Config, kind: str, chip: str = "") -> None:
    """Refuse float8 where it cannot run.

    Args:
        config: With `dtype` and `compile` resolved.
        kind: Family of the device: cuda, cpu (which computes what a GPU does, slowly), tpu, neuron or xla.
        chip: Its generation, such as H100; empty when unknown.

    Raises:
        ConfigError: The run has `float8`, and something that excludes it.
    """
    problem = _find_problem(config, kind, chip)
    if problem:
        raise ConfigError(f"float8={config.float8}: {problem}")


def _find_problem(config: Config, kind: str, chip: str) -> str:
    """Return why the run cannot have float8, and what to change; empty when it can, or has none."""
    if config.float8 == "none":
        return ""
    model = config.model
    sizes = (model.dim, model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim)
    problems = (
        (config.engine == "jax", "the JAX engine does not have it: use engine=torch"),
        (kind not in {"cuda", "cpu"}, "only NVIDIA GPUs have it: use float8=none"),
        (kind == "cuda" and bool(chip) and chip not in _CHIPS, f"{chip} has no such products: use float8=none"),
        (config.products == "fp32", "its results are in bf16: use dtype=bf16"),
        (model.experts > 0, "a mixture of experts cannot have it: use float8=none"),
        (config.lora.rank > 0, "LoRA cannot have it: use float8=none"),
        (config.mesh.tensor > 1, "mesh.tensor cannot have it: use mesh.fsdp instead"),
        (config.remat == "selective", "selective recomputation does not know it: use remat=full or none"),
        (
            any(size % MULTIPLE for size in sizes),
            f"the sizes of the matrices of a block, {', '.join(map(str, sizes))}, must be multiples of {MULTIPLE}",
        ),
    )
    return next((text for found, text in problems if found), "")
