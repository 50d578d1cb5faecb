"""How many bytes a device needs for a step: by counting what an engine keeps, without making any of it.

The counts follow the engines (trainer/torch_engine, trainer/jax_engine); the factors that no count gives were fitted to
the TPU compiler's own answers for this trainer's step: docs/performance.md has the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from trainer.config import Config, ModelConfig
from trainer.shape.architecture import Parameter, parameters
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.layout import layout_of
from trainer.shape.limits import ATTENTION_CHUNK, LOGITS_BYTES
from trainer.shape.mesh import Mesh

Engine: TypeAlias = Literal["torch", "jax"]
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one device at the fullest moment of a step.

    weights: fp32. optimizer: its moments. averages: of the weights. gradients: with a second set while micro-batches
    are summed up. gathered: whole weights and gradients of the blocks at work, and copies in bf16. activations: kept
    for the backward pass. block: what the backward pass of one block works on. logits: with their gradient.
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
        """What is there between two steps."""
        return self.weights + self.optimizer + self.averages

    @property
    def total(self) -> int:
        work = self.gathered + self.activations + self.block + self.logits
        return self.state + self.gradients - self.reused + work

    def as_json(self) -> dict[str, int]:
        return {**dataclasses.asdict(self), "total": self.total}


def usable_memory(hardware: Hardware) -> int | None:
    """Bytes of one device that a program gets; None when the size is not known."""
    if hardware.memory_bytes is None:
        return None
    known = _USABLE_GIB.get(hardware.chip)
    return int(known * (1 << 30)) if known else int(hardware.memory_bytes * _USABLE[hardware.kind])


# What libtpu 0.0.42 has for programs, by its own words when one is too large (trainer/jax_engine/ahead.py).
_USABLE_GIB: Mapping[str, float] = MappingProxyType(
    {"v4": 30.75, "v5e": 15.75, "v5p": 95.74, "v6e": 31.25, "tpu7x": 94.75}
)
# Others. CUDA: context, NCCL's buffers and the allocator's losses take about 6 %. Neuron's runtime: not published.
_USABLE: Mapping[Kind, float] = MappingProxyType({"tpu": 0.97, "cuda": 0.94, "neuron": 0.94, "cpu": 0.9})


def memory(config: Config, mesh: Mesh, engine: Engine) -> Memory:
    """What one device of the mesh needs. Raises ConfigError when the batch does not divide."""
    count = _Count(config, mesh, engine)
    local = sum(count.local(parameter) for parameter in parameters(config.model))
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
        return FLOAT if self.config.dtype == "fp32" else 2

    @property
    def tokens(self) -> int:
        """Of one micro-batch on one device."""
        return self.config.rows_per_micro_batch(self.mesh.shards) * self.config.seq_len

    def local(self, parameter: Parameter) -> int:
        """Values of the parameter that lie on one device."""
        divided = self.mesh.fsdp * (self.mesh.tensor if layout_of(parameter).tensor is not None else 1)
        return parameter.size // divided

    def optimizer(self, local: int) -> int:
        if self.config.optim.kind == "adamw":
            return 2 * FLOAT * local
        # Adafactor: one number for each row and column of a matrix, one for each value of a vector.
        return FLOAT * sum(sum(p.shape) for p in parameters(self.model))

    @property
    def times_again(self) -> int:
        """Copies of what a block keeps while it is computed again: JAX holds the gradients beside it."""
        return 2 if self.engine == "jax" else 1

    def gradients(self, local: int) -> int:
        """torch adds micro-batches up where they are. JAX has the sum, the next one, and the new sum."""
        sets = 3 if self.config.accumulate > 1 and self.engine == "jax" else 1
        return sets * FLOAT * local

    def gradients_come_late(self) -> bool:
        """Whether a gradient's memory is taken only when it is computed. JAX's loops over layers and torch's buckets
        take all of it before, and a sum over micro-batches stays."""
        buckets = self.mesh.data > 1 and self.mesh.fsdp == 1
        return self.engine == "torch" and self.config.accumulate == 1 and not buckets

    def gathered(self, local: int) -> int:
        """Copies of weights, and gradients before they are divided: of two blocks (the next is fetched early), and of
        the larger of embedding and head. Without division only the copies in bf16 are extra."""
        copies = local * self.width if self.width < FLOAT else 0
        if self.mesh.fsdp == 1:
            return copies
        if self.engine == "torch":
            copies = 0  # FSDP2 narrows what it gathers, not what it keeps
        block = sum(p.size for p in parameters(self.model) if p.name.startswith("blocks.0.")) // self.mesh.tensor
        table = self.model.tokens * self.model.dim // self.mesh.tensor
        return 2 * block * self.width + (block + table) * FLOAT + table * self.width + copies

    def residual(self) -> int:
        """The stream between two blocks, which is fp32 in any case."""
        return self.tokens * self.model.dim * FLOAT

    def kept_of_block(self) -> int:
        """What one block keeps for its backward pass.

        Whole: the stream before each norm, and what comes out of it, narrowed (torch: for each of five products).
        Divided over the tensor axis: queries, keys, values, what attention gives; gate, up, and their product (torch:
        silu of gate, too).
        """
        model, width = self.model, self.width
        wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
        narrowed, hidden = (2, 3) if self.engine == "jax" else (5, 4)
        whole = (2 * FLOAT + narrowed * width) * model.dim
        divided = width * (2 * wide + 2 * narrow + hidden * model.hidden) // self.mesh.tensor
        return self.tokens * (whole + divided)

    def working_of_block(self) -> int:
        """Gradients of the widest results, and one chunk of attention with its gradient."""
        model = self.model
        rows = self.tokens // self.config.seq_len
        heads = -(-model.heads // self.mesh.tensor)
        chunk = rows * heads * min(ATTENTION_CHUNK, self.config.seq_len) * self.config.seq_len * FLOAT
        wide = self.tokens * self.width * 3 * model.hidden // self.mesh.tensor
        return max(2 * chunk if self.engine == "jax" else 0, wide) + self.tokens * model.dim * FLOAT

    def logits(self) -> int:
        """In fp32, with their gradient, in chunks of LOGITS_BYTES; and the bf16 result of the product."""
        whole = self.tokens * self.model.tokens // self.mesh.tensor * FLOAT
        return int(2.5 * min(whole, LOGITS_BYTES))
