"""The model as plain torch, its parameters named as trainer/shape/architecture.py lists them.

Static shapes; nothing here knows about other processes, or, but for attention in float32, about devices. With tensor
parallelism a process holds some of the heads and hidden units only, so sizes are read off what the layers return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.torch_engine.rotary import rotary_table, rotate

Rerun: TypeAlias = Callable[..., Tensor]
"""`rerun(function, *arguments)`: calls it, keeps no intermediate values, and calls it again for the gradients."""


class Transformer(nn.Module):
    """`model(tokens)` is the last hidden state after its norm, which `head_weight()` turns into logits."""

    def __init__(self, config: ModelConfig, seq_len: int, rerun: Rerun | None = None) -> None:
        """rerun: how a block is computed again in the backward pass; None keeps all it computed."""
        super().__init__()
        self._table = (seq_len, config.head_dim, config.rope_theta)
        self.embedding = Embedding(config.tokens, config.dim)
        self.blocks = nn.ModuleList(Block(config, rerun) for _ in range(config.layers))
        self.norm = Norm(config.dim, eps=config.norm_eps)
        self.head = None if config.tied else Linear(config.dim, config.tokens, bias=False)
        cosine, sine = rotary_table(*self._table)
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: int64 (batch, length up to seq_len). Returns (batch, length, dim)."""
        length = tokens.shape[1]
        cosine, sine = self.cosine[:length], self.sine[:length]
        x: Tensor = self.embedding(tokens).float()  # the residual stream is never narrower
        for block in self.blocks:
            x = block(x, cosine, sine)
        result: Tensor = self.norm(x)
        return result

    def head_weight(self) -> Tensor:
        """Shape (vocab, dim)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def fill_tables(self) -> None:
        """Write the position tables again, after the model was moved off the meta device."""
        for buffer, table in zip((self.cosine, self.sine), rotary_table(*self._table), strict=True):
            buffer.copy_(table)


class Block(nn.Module):
    def __init__(self, config: ModelConfig, rerun: Rerun | None) -> None:
        super().__init__()
        self._rerun = rerun
        self.attention_norm = Norm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = Norm(config.dim, eps=config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        if self._rerun is not None and self.training:
            return self._rerun(self.compute, x, cosine, sine)
        return self.compute(x, cosine, sine)

    def compute(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        result: Tensor = x + self.ffn(self.ffn_norm(x))
        return result


class Linear(nn.Linear):
    """Without values of its own: trainer/shape/initial.py has them. (torch's on the meta device load its compiler.)"""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """See Linear."""

    def reset_parameters(self) -> None:
        pass


class Norm(nn.RMSNorm):
    """In float32 whatever the weights were gathered in."""

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        return F.rms_norm(x, self.normalized_shape, weight.float(), self.eps)


class Attention(nn.Module):
    """Causal attention; each key and value head serves heads / kv_heads query heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.grouped = config.kv_heads != config.heads
        self.query = Linear(config.dim, wide, bias=False)
        self.key = Linear(config.dim, narrow, bias=False)
        self.value = Linear(config.dim, narrow, bias=False)
        self.out = Linear(wide, config.dim, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.head_dim) for layer in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        grouped = self.grouped
        if grouped and not takes_groups(query.device.type, query.dtype):
            key, value = (repeat(part, query.shape[2] // part.shape[2]) for part in (key, value))
            grouped = False
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True, enable_gqa=grouped
        )
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return result


def takes_groups(device: str, dtype: torch.dtype) -> bool:
    """Whether torch has attention without the matrix of scores for fewer heads of keys than of queries (2.13: all
    kernels but CUDA's only one for float32)."""
    return device != "cuda" or dtype != torch.float32


def repeat(heads: Tensor, times: int) -> Tensor:
    """heads: (batch, length, heads, head_dim). Each head `times` times, one after the other."""
    return heads[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Linear(config.dim, config.hidden, bias=False)
        self.up = Linear(config.dim, config.hidden, bias=False)
        self.down = Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result
