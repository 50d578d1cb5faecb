"""The options with which the JAX engine compiles its step for each TPU generation: one table, each row with its source.

They are options of one compilation and not of the environment, so that a plan's compilation elsewhere has them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.accelerators.tpu_generations import GENERATIONS

VARIABLE = "LIBTPU_INIT_ARGS"
"""Where users write options of libtpu; what is written there wins."""

_DENSE = ("v5e", "v5p", "v6e")
_MAXTEXT = (
    "AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py and the models of v5e, v5p and Trillium beside it, "
    "read 2026-11-27"
)
_LIBTPU = (
    "libtpu 0.0.43.2 names post_spmd in its message about collective matmul; vllm-project/tpu-inference sets the "
    "option in vllm_model_wrapper.py (post_spmd_conservative), read 2026-11-27; compared in docs/performance.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOption:
    """One option of libtpu's compiler.

    Attributes:
        name: Without the leading dashes.
        value: As libtpu reads it.
        generations: Names of the generations that get it.
        source: Who publishes it for them, and when it was read.
    """

    name: str
    value: str
    generations: tuple[str, ...]
    source: str


OPTIONS: tuple[CompilerOption, ...] = (
    # Sums of gradients become permutes that overlap the product before them, in fp32 as the sums are.
    CompilerOption(
        name="xla_tpu_reduce_scatter_collective_matmul_mode", value="post_spmd", generations=_DENSE, source=_LIBTPU
    ),
    # Sums between slices overlap other work.
    *(
        CompilerOption(name=name, value="true", generations=_DENSE, source=f"{_MAXTEXT}: DATA_PARALLEL_OVERLAP")
        for name in ("xla_tpu_enable_data_parallel_all_reduce_opt", "xla_tpu_data_parallel_opt_different_sized_ops")
    ),
    # Vector memory of one operation; the rest prefetches for the next.
    CompilerOption(
        name="xla_tpu_scoped_vmem_limit_kib",
        value="98304",
        generations=("v6e",),
        source=f"{_MAXTEXT}: DENSE_VMEM_LIMIT_FLAG",
    ),
    CompilerOption(
        name="xla_tpu_scoped_vmem_limit_kib",
        value="61440",
        generations=("tpu7x",),
        source="AI-Hypercomputer/tpu-recipes, training/ironwood/llama3.1-70b/8k-bf16-tpu7x-4x4x4, read 2026-11-27",
    ),
)


def choose_compiler_options(device: str, given: str = "") -> dict[str, str]:
    """Return the options for a TPU; none for other devices.

    Args:
        device: Name of the generation or of its device: v5e, TPU v5e.
        given: Value of LIBTPU_INIT_ARGS; an option that is in it is left out.
    """
    generation = next((each.name for each in GENERATIONS if device in (each.name, each.device)), None)
    named = {word.lstrip("-").partition("=")[0] for word in given.split()}
    return {
        option.name: option.value for option in OPTIONS if generation in option.generations and option.name not in named
    }


def format_compiler_options(options: Mapping[str, str]) -> str:
    """Return the options as a user would write them into LIBTPU_INIT_ARGS."""
    return " ".join(f"--{name}={value}" for name, value in options.items())
