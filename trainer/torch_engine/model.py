"""The model as plain torch modules; trainer/shape/architecture.py lists the parameters by the same names.

Shapes are static. Nothing here depends on other processes, or, except for attention in float32, on devices. With tensor
parallelism a process holds only some of the heads and hidden units, so sizes are taken from the layers' results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.torch_engine.rotary import apply_rotary, make_rotary_table

Recompute: TypeAlias = Callable[..., Tensor]
"""`rerun(function, *arguments)` calls the function, keeps no activations, and calls it again in the backward pass."""


class Transformer(nn.Module):
    """A transformer whose result is the last hidden state after its norm; `head_weight()` turns it into logits."""

    def __init__(self, config: ModelConfig, seq_len: int, rerun: Recompute | None = None) -> None:
        """Build the modules.

        Args:
            config: Sizes of the model.
            seq_len: Longest sequence.
            rerun: How a block is recomputed in the backward pass; None keeps its activations.
        """
        super().__init__()
        self._table = (seq_len, config.head_dim, config.rope_theta)
        self.embedding = Embedding(config.tokens, config.dim)
        self.blocks = nn.ModuleList(Block(config, rerun) for _ in range(config.layers))
        self.norm = Norm(config.dim, eps=config.norm_eps)
        self.head = None if config.tied else Linear(config.dim, config.tokens, bias=False)
        cosine, sine = make_rotary_table(*self._table)
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the hidden state.

        Args:
            tokens: int64, shape (batch, length), length at most seq_len.

        Returns:
            Shape (batch, length, dim).
        """
        length = tokens.shape[1]
        cosine, sine = self.cosine[:length], self.sine[:length]
        x: Tensor = self.embedding(tokens).float()  # the residual stream is always float32
        for block in self.blocks:
            x = block(x, cosine, sine)
        result: Tensor = self.norm(x)
        return result

    def head_weight(self) -> Tensor:
        """Return the head's weight, shape (vocab, dim)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def fill_tables(self) -> None:
        """Write the position tables again, after the model was moved off the meta device."""
        for buffer, table in zip((self.cosine, self.sine), make_rotary_table(*self._table), strict=True):
            buffer.copy_(table)


class Block(nn.Module):
    """Attention and feed-forward, each after a norm, added to the residual stream."""

    def __init__(self, config: ModelConfig, rerun: Recompute | None) -> None:
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
    """Linear layer without initial values, which trainer/shape/initial_values.py makes.

    torch's own initialization on the meta device would load its compiler.
    """

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """Embedding without initial values; see Linear."""

    def reset_parameters(self) -> None:
        pass


class Norm(nn.RMSNorm):
    """RMS norm computed in float32, with its result in the type of the products that read it."""

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        result = F.rms_norm(x, self.normalized_shape, weight.float(), self.eps)
        # Once here, not in each product: each would keep a copy for its backward pass.
        kind = x.device.type
        return result.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else result


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
        query, key = apply_rotary(query, cosine, sine), apply_rotary(key, cosine, sine)
        grouped = self.grouped
        if grouped and not supports_grouped_heads(query.device.type, query.dtype):
            key, value = (repeat_heads(part, query.shape[2] // part.shape[2]) for part in (key, value))
            grouped = False
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True, enable_gqa=grouped
        )
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return result


def supports_grouped_heads(device: str, dtype: torch.dtype) -> bool:
    """Return whether torch's fused attention accepts fewer key heads than query heads.

    In torch 2.13 all kernels do, except CUDA's only kernel for float32.
    """
    return device != "cuda" or dtype != torch.float32


def repeat_heads(heads: Tensor, times: int) -> Tensor:
    """Repeat each head `times` times in a row; `heads` has shape (batch, length, heads, head_dim)."""
    return heads[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class FeedForward(nn.Module):
    """Gated feed-forward (SwiGLU)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Linear(config.dim, config.hidden, bias=False)
        self.up = Linear(config.dim, config.hidden, bias=False)
        self.down = Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result
