"""The parameters of the model, by name: the one list that engines, checkpoints, export and advice share.

A decoder-only transformer: rotary positions, RMS norm before each part, gated feed-forward (SwiGLU), grouped key and
value heads, no biases. A matrix has shape (out, in), as torch's Linear has it: y = x @ w.T.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainer.config import ModelConfig

Role: TypeAlias = Literal["embedding", "head", "norm", "column", "row"]
"""column: its outputs may be divided over the tensor axis (query, key, value, gate, up). row: its inputs."""

INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class Parameter:
    """std: of its first values; None for ones (norms)."""

    name: str
    shape: tuple[int, ...]
    role: Role
    std: float | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: to matrices only."""
        return len(self.shape) > 1


def parameters(model: ModelConfig) -> tuple[Parameter, ...]:
    """All parameters in the order of the forward pass. A tied head is not listed: it is `embedding.weight`."""
    return tuple(_walk(model))


def parameter_count(model: ModelConfig) -> int:
    return sum(parameter.size for parameter in parameters(model))


def flops_per_token(model: ModelConfig, seq_len: int) -> float:
    """Training FLOPs of one token: 6 for each weight in a matrix product, and 6 x layers x heads x head_dim x seq_len.

    The last term is causal attention: half of the 12 of full attention (forward and backward, two products). The
    embedding is a look-up and counts only where it is also the head. Recomputation (remat) is not counted: it is no
    useful work.
    """
    matrices = sum(p.size for p in parameters(model) if p.decays and p.role != "embedding")
    if model.tied:
        matrices += model.tokens * model.dim
    return 6.0 * matrices + 6.0 * model.layers * model.heads * model.head_dim * seq_len


MFU_FORMULA = "(6*matrix_weights + 6*layers*heads*head_dim*seq_len) * tokens_per_s / peak"


def _walk(model: ModelConfig) -> Iterator[Parameter]:
    dim, hidden = model.dim, model.hidden
    wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
    inward = INIT_STD / math.sqrt(2 * model.layers)  # what is added to the residual stream, 2 x layers times
    yield Parameter("embedding.weight", (model.tokens, dim), "embedding", INIT_STD)
    for layer in range(model.layers):
        block = f"blocks.{layer}"
        yield Parameter(f"{block}.attention_norm.weight", (dim,), "norm", None)
        yield Parameter(f"{block}.attention.query.weight", (wide, dim), "column", INIT_STD)
        yield Parameter(f"{block}.attention.key.weight", (narrow, dim), "column", INIT_STD)
        yield Parameter(f"{block}.attention.value.weight", (narrow, dim), "column", INIT_STD)
        yield Parameter(f"{block}.attention.out.weight", (dim, wide), "row", inward)
        yield Parameter(f"{block}.ffn_norm.weight", (dim,), "norm", None)
        yield Parameter(f"{block}.ffn.gate.weight", (hidden, dim), "column", INIT_STD)
        yield Parameter(f"{block}.ffn.up.weight", (hidden, dim), "column", INIT_STD)
        yield Parameter(f"{block}.ffn.down.weight", (dim, hidden), "row", inward)
    yield Parameter("norm.weight", (dim,), "norm", None)
    if not model.tied:
        yield Parameter("head.weight", (model.tokens, dim), "head", INIT_STD)
