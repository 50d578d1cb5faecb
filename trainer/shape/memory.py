"""Estimate of the bytes that a step needs on one device, by counting what an engine keeps.

The counts follow the engines (trainer/torch_engine, trainer/jax_engine). The factors that cannot be counted were fitted
to the TPU compiler's results for this trainer's step; docs/performance.md has the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import Config, ModelConfig
from trainer.shape.architecture import Parameter, list_parameters
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.layout import get_layout
from trainer.shape.limits import ATTENTION_CHUNK, LOGITS_BYTES
from trainer.shape.mesh import Mesh

Engine: TypeAlias = Literal["torch", "jax"]
FLOAT = 4
ESTIMATE_ERROR = 0.2  # tests compare the estimate with compilers and allocators; docs/performance.md has the ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device at the peak of a step.

    Attributes:
        weights: In fp32.
        optimizer: Moments of the optimizer.
        averages: Averaged weights.
        gradients: With a second set while micro-batches are summed.
        gathered: Whole weights and gradients of the current blocks, and copies in bf16.
        activations: Kept for the backward pass.
        block: Working memory of the backward pass of one block.
        logits: With their gradient.
        reused: Bytes counted twice, because gradients take the place of activations.
    """

    weights: int
    optimizer: int
    averages: int
    gradients: int
    gathered: int
    activations: int
    block: int
    logits: int
    reused: int

    @property
    def state(self) -> int:
        """Bytes that are kept between two steps."""
        return self.weights + self.optimizer + self.averages

    @property
    def total(self) -> int:
        work = self.gathered + self.activations + self.block + self.logits
        return self.state + self.gradients - self.reused + work

    def as_json(self) -> dict[str, int]:
        return {**dataclasses.asdict(self), "total": self.total}


def estimate_usable_memory(hardware: Hardware) -> int | None:
    """Return the bytes of one device that a program can use; None when the size is unknown."""
    if hardware.memory_bytes is None:
        return None
    known = _USABLE_GIB.get(hardware.chip)
    return int(known * (1 << 30)) if known else int(hardware.memory_bytes * _USABLE[hardware.kind])


_USABLE_GIB: Mapping[str, float] = MappingProxyType(
    {each.name: each.usable_gib for each in GENERATIONS if each.usable_gib is not None}
)
# Others. CUDA: context, NCCL's buffers and the allocator's losses take about 6 %. Neuron's runtime: not published.
_USABLE: Mapping[Kind, float] = MappingProxyType({"tpu": 0.97, "cuda": 0.94, "neuron": 0.94, "cpu": 0.9})


def estimate_memory(config: Config, mesh: Mesh, engine: Engine) -> Memory:
    """Estimate the memory that one device of the mesh needs.

    Raises:
        ConfigError: The batch does not divide.
    """
    count = _Count(config, mesh, engine)
    local = sum(count.local(parameter) for parameter in list_parameters(config.model))
    kept = count.kept_of_block()
    activations = config.model.layers * (count.residual() if config.remat else kept)
    gradients = count.gradients(local)
    return Memory(
        weights=FLOAT * local,
        optimizer=count.optimizer(local),
        averages=FLOAT * local if config.optim.ema else 0,
        gradients=gradients,
        gathered=count.gathered(local),
        activations=activations,
        block=count.working_of_block() + (count.times_again * kept if config.remat else 0),
        logits=count.logits(),
        reused=min(gradients, activations) if count.gradients_come_late() else 0,
    )


@dataclass(frozen=True, slots=True)
class _Count:
    config: Config
    mesh: Mesh
    engine: Engine

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @property
    def width(self) -> int:
        """Bytes of a number in the matrix products."""
        return FLOAT if self.config.products == "fp32" else 2

    @property
    def fuses(self) -> bool:
        """Whether a compiler recomputes what costs no product: copies of weights, and an activation function."""
        return self.engine == "jax" or self.config.compiled

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one device."""
        return self.config.rows_per_micro_batch(self.mesh.shards) * self.config.seq_len

    def local(self, parameter: Parameter) -> int:
        """Return the number of the parameter's values on one device."""
        divided = self.mesh.fsdp * (self.mesh.tensor if get_layout(parameter).tensor is not None else 1)
        return parameter.size // divided

    def optimizer(self, local: int) -> int:
        if self.config.optim.kind == "adamw":
            return 2 * FLOAT * local
        # Adafactor: one number for each row and column of a matrix, one for each value of a vector.
        return FLOAT * sum(sum(p.shape) for p in list_parameters(self.model))

    @property
    def times_again(self) -> int:
        """Copies of a block's activations during recomputation: JAX holds the gradients as well."""
        return 2 if self.engine == "jax" else 1

    def gradients(self, local: int) -> int:
        """Return the bytes of all gradients.

        torch sums micro-batches in place; JAX holds the sum, the next gradients, and the new sum.
        """
        sets = 3 if self.config.accumulate > 1 and self.engine == "jax" else 1
        return sets * FLOAT * local

    def gradients_come_late(self) -> bool:
        """Return whether a gradient's memory is allocated only when it is computed.

        JAX's loops over layers and torch's buckets allocate all of it before, and a sum over micro-batches is kept.
        """
        buckets = self.mesh.data > 1 and self.mesh.fsdp == 1
        return self.engine == "torch" and self.config.accumulate == 1 and not buckets

    def gathered(self, local: int) -> int:
        """Return the bytes of gathered weights, and of gradients before they are scattered.

        They are of two blocks (the next is prefetched), and of the larger of embedding and head. Without sharding only
        the copies in bf16 are extra.
        """
        copies = local * self.width if self.width < FLOAT else 0
        if self.engine == "torch" and (self.config.compiled or self.mesh.fsdp > 1):
            copies = 0  # FSDP2 converts what it gathers, not what it keeps
        if self.mesh.fsdp == 1:
            return copies
        block = sum(p.size for p in list_parameters(self.model) if p.name.startswith("blocks.0.")) // self.mesh.tensor
        table = self.model.tokens * self.model.dim // self.mesh.tensor
        return 2 * block * self.width + (block + table) * FLOAT + table * self.width + copies

    def residual(self) -> int:
        """Return the bytes of the residual stream between two blocks, which is always fp32."""
        return self.tokens * self.model.dim * FLOAT

    def kept_of_block(self) -> int:
        """Return the bytes that one block keeps for its backward pass.

        Not sharded: the stream before each norm and the norm's output, in the products' type. Sharded over the tensor
        axis: queries, keys, values, the output of attention; gate, up, and their product (torch uncompiled: silu of
        gate, too).
        """
        model, width = self.model, self.width
        wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
        hidden = 3 if self.fuses else 4
        whole = 2 * (FLOAT + width) * model.dim
        divided = width * (2 * wide + 2 * narrow + hidden * model.hidden) // self.mesh.tensor
        return self.tokens * (whole + divided)

    def working_of_block(self) -> int:
        """Return the bytes of the gradients of the widest results, and of one chunk of attention with its gradient."""
        model = self.model
        rows = self.tokens // self.config.seq_len
        heads = -(-model.heads // self.mesh.tensor)
        chunk = rows * heads * min(ATTENTION_CHUNK, self.config.seq_len) * self.config.seq_len * FLOAT
        wide = self.tokens * self.width * 3 * model.hidden // self.mesh.tensor
        return max(2 * chunk if self.engine == "jax" else 0, wide) + self.tokens * model.dim * FLOAT

    def logits(self) -> int:
        """Return the bytes of fp32 logits with their gradient, in chunks of LOGITS_BYTES, and of the bf16 product."""
        whole = self.tokens * self.model.tokens // self.mesh.tensor * FLOAT
        return int(2.5 * min(whole, LOGITS_BYTES))
