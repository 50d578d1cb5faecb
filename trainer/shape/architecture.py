"""The parameters of the model by name: the one list that engines, checkpoints, export and advice share.

A decoder-only transformer: rotary positions, RMS norm before each part, gated feed-forward (SwiGLU), grouped key and
value heads; as settings, biases of queries, keys and values, norms of queries and keys, and norms of the results of
each part. A matrix has shape (out, in), as torch's Linear has it: y = x @ w.T.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from trainer.config import ModelConfig

Role: TypeAlias = Literal[
    "embedding",
    "head",
    "norm",
    "head_vector",
    "column",
    "row",
    "router",
    "expert_column",
    "expert_row",
    "lora_shared",
    "lora_column",
    "lora_row",
    "lora_copy",
]
"""column: outputs may be sharded over the tensor axis (query, key, value, gate, up). row: inputs may be. norm, router:
whole on each device of the tensor axis, which has the gradient of its tokens alone. head_vector: likewise, with the
gradient of its heads. expert_column, expert_row: the matrices of all experts, shape (experts, out, in); the tensor axis
shards the experts.
trainer/shape/lora.py describes the roles of adapters."""

INIT_STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A named parameter without its values.

    Attributes:
        name: Such as `blocks.0.ffn.up.weight`.
        shape: Of the whole tensor.
        role: Decides its layout.
        std: Standard deviation of the initial values; 0 for zeros (biases, and norms with an offset), None for ones
            (other norms).
        frozen: Whether training leaves it as it is, without gradient and optimizer state.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    std: float | None
    frozen: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: only to matrices."""
        return len(self.shape) > 1

    @property
    def is_hidden_matrix(self) -> bool:
        """Whether it is a matrix between the embedding and the head, which Muon updates."""
        return self.role in ("column", "row")

    @property
    def is_expert(self) -> bool:
        """Whether it holds matrices of all experts, of which each token uses some."""
        return self.role in ("expert_column", "expert_row")


@lru_cache(maxsize=32)
def list_parameters(model: ModelConfig) -> tuple[Parameter, ...]:
    """List all parameters in the order of the forward pass; a tied head is `embedding.weight` and not listed."""
    return tuple(_walk(model))


@lru_cache(maxsize=32)
def count_parameters(model: ModelConfig) -> int:
    """Return the number of values in all parameters."""
    return sum(parameter.size for parameter in list_parameters(model))


@lru_cache(maxsize=32)
def count_block_parameters(model: ModelConfig) -> int:
    """Return the number of values in the parameters of one block."""
    return sum(parameter.size for parameter in list_parameters(model) if parameter.name.startswith("blocks.0."))


@lru_cache(maxsize=32)
def count_active_parameters(model: ModelConfig) -> int:
    """Return the number of values in the parameters that compute a token: of all experts, those that it chooses."""
    return sum(_count_active(parameter, model) for parameter in list_parameters(model))


@lru_cache(maxsize=32)
def count_active_matrix_weights(model: ModelConfig) -> int:
    """Return the number of weights in the matrix products of a token, the head's included."""
    matrices = (p for p in list_parameters(model) if p.decays and p.role != "embedding")
    return sum(_count_active(p, model) for p in matrices) + (model.tokens * model.dim if model.tied else 0)


def _count_active(parameter: Parameter, model: ModelConfig) -> int:
    if not parameter.is_expert:
        return parameter.size
    return parameter.size // model.experts * model.experts_per_token


@lru_cache(maxsize=32)
def count_flops_per_token(model: ModelConfig, seq_len: int) -> float:
    """Return the training FLOPs of one token.

    They are 6 for each weight in a matrix product (of experts: those that a token chooses), and in each layer 12 x
    heads x head_dim for each token that is attended to (forward and backward, two products): seq_len / 2 on average, or
    fewer in a window. The embedding is a lookup and counts only where it is also the head. Recomputation (remat) is not
    counted, because it is not useful work.
    """
    matrices = count_active_matrix_weights(model)
    attended = sum(_attended(model.get_window(layer), seq_len) for layer in range(model.layers))
    return 6.0 * matrices + 12.0 * model.heads * model.head_dim * attended


MFU_FORMULA = (
    "(6*matrix_weights + 12*layers*heads*head_dim*attended) * tokens_per_s / peak; attended: seq_len/2, or "
    "window - window^2/(2*seq_len), the mean of the layers"
)


def _attended(window: int, seq_len: int) -> float:
    """Return the mean number of tokens to which a token attends."""
    if not 0 < window < seq_len:
        return seq_len / 2
    return window - window**2 / (2 * seq_len)


def _walk(model: ModelConfig) -> Iterator[Parameter]:
    dim = model.dim
    wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
    unit = 0.0 if model.norm_offset else None
    inward = INIT_STD / math.sqrt(2 * model.layers)  # for the 2 x layers additions to the residual stream
    yield Parameter(name="embedding.weight", shape=(model.tokens, dim), role="embedding", std=INIT_STD)
    for layer in range(model.layers):
        block = f"blocks.{layer}"
        yield Parameter(name=f"{block}.attention_norm.weight", shape=(dim,), role="norm", std=unit)
        yield Parameter(name=f"{block}.attention.query.weight", shape=(wide, dim), role="column", std=INIT_STD)
        yield Parameter(name=f"{block}.attention.key.weight", shape=(narrow, dim), role="column", std=INIT_STD)
        yield Parameter(name=f"{block}.attention.value.weight", shape=(narrow, dim), role="column", std=INIT_STD)
        yield Parameter(name=f"{block}.attention.out.weight", shape=(dim, wide), role="row", std=inward)
        yield from _walk_head_vectors(model, f"{block}.attention", unit)
        if model.post_norm:
            yield Parameter(name=f"{block}.attention_post_norm.weight", shape=(dim,), role="norm", std=unit)
        yield Parameter(name=f"{block}.ffn_norm.weight", shape=(dim,), role="norm", std=unit)
        yield from _walk_feed_forward(model, f"{block}.ffn", inward)
        if model.post_norm:
            yield Parameter(name=f"{block}.ffn_post_norm.weight", shape=(dim,), role="norm", std=unit)
    yield Parameter(name="norm.weight", shape=(dim,), role="norm", std=unit)
    if not model.tied:
        yield Parameter(name="head.weight", shape=(model.tokens, dim), role="head", std=INIT_STD)


def _walk_feed_forward(model: ModelConfig, ffn: str, inward: float) -> Iterator[Parameter]:
    dim, hidden, experts = model.dim, model.hidden, model.experts
    if not experts:
        yield Parameter(name=f"{ffn}.gate.weight", shape=(hidden, dim), role="column", std=INIT_STD)
        yield Parameter(name=f"{ffn}.up.weight", shape=(hidden, dim), role="column", std=INIT_STD)
        yield Parameter(name=f"{ffn}.down.weight", shape=(dim, hidden), role="row", std=inward)
        return
    high, low = (experts, model.expert_dim, dim), (experts, dim, model.expert_dim)
    yield Parameter(name=f"{ffn}.router.weight", shape=(experts, dim), role="router", std=INIT_STD)
    yield Parameter(name=f"{ffn}.experts.gate", shape=high, role="expert_column", std=INIT_STD)
    yield Parameter(name=f"{ffn}.experts.up", shape=high, role="expert_column", std=INIT_STD)
    yield Parameter(name=f"{ffn}.experts.down", shape=low, role="expert_row", std=inward)


def _walk_head_vectors(model: ModelConfig, attention: str, unit: float | None) -> Iterator[Parameter]:
    if model.qkv_bias:
        for part, heads in (("query", model.heads), ("key", model.kv_heads), ("value", model.kv_heads)):
            shape = (heads * model.head_dim,)
            yield Parameter(name=f"{attention}.{part}_bias.weight", shape=shape, role="head_vector", std=0.0)
    if model.qk_norm:
        for part in ("query", "key"):
            shape = (model.head_dim,)
            yield Parameter(name=f"{attention}.{part}_norm.weight", shape=shape, role="head_vector", std=unit)
