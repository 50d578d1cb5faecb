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
from trainer.shape.rotary import make_local_rotary_table, make_rotary_table
from trainer.torch_engine.untyped import from_numpy

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
        self._config, self._seq_len = config, seq_len
        self.embedding = Embedding(config.tokens, config.dim)
        self.blocks = nn.ModuleList(Block(config, layer, rerun) for layer in range(config.layers))
        self.norm = Norm(config, config.dim)
        self.head = None if config.tied else Linear(config.dim, config.tokens, bias=False)
        self.cosine: Tensor
        self.sine: Tensor
        self.local_cosine: Tensor
        self.local_sine: Tensor
        for name in ("cosine", "sine", *(("local_cosine", "local_sine") if config.local_rope_theta else ())):
            self.register_buffer(name, torch.empty(seq_len, config.head_dim // 2), persistent=False)
        if not self.cosine.is_meta:
            self.fill_tables()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the hidden state.

        Args:
            tokens: int64, shape (batch, length), length at most seq_len.

        Returns:
            Shape (batch, length, dim).
        """
        length = tokens.shape[1]
        angles = self.cosine[:length], self.sine[:length]
        local = (self.local_cosine[:length], self.local_sine[:length]) if self._config.local_rope_theta else angles
        x: Tensor = self.embedding(tokens).float()  # the residual stream is always float32
        if self._config.embed_scale:
            x = x * self._config.dim**0.5
        for layer, block in enumerate(self.blocks):
            x = block(x, *(local if self._config.get_window(layer) else angles))
        result: Tensor = self.norm(x)
        return result

    def head_weight(self) -> Tensor:
        """Return the head's weight, shape (vocab, dim)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def fill_tables(self) -> None:
        """Write the position tables, for a model that was moved off the meta device."""
        for buffer, table in zip((self.cosine, self.sine), make_rotary_table(self._config, self._seq_len), strict=True):
            buffer.copy_(from_numpy(table))
        if self._config.local_rope_theta:
            tables = make_local_rotary_table(self._config, self._seq_len)
            for buffer, table in zip((self.local_cosine, self.local_sine), tables, strict=True):
                buffer.copy_(from_numpy(table))


class Block(nn.Module):
    """Attention and feed-forward, each after a norm, and with `post_norm` before one, added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int, rerun: Recompute | None) -> None:
        super().__init__()
        self._rerun = rerun
        self.attention_norm = Norm(config, config.dim)
        self.attention = Attention(config, config.get_window(layer))
        self.attention_post_norm = Norm(config, config.dim) if config.post_norm else nn.Identity()
        self.ffn_norm = Norm(config, config.dim)
        self.ffn = FeedForward(config)
        self.ffn_post_norm = Norm(config, config.dim) if config.post_norm else nn.Identity()

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        if self._rerun is not None and self.training:
            return self._rerun(self.compute, x, cosine, sine)
        return self.compute(x, cosine, sine)

    def compute(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention_post_norm(self.attention(self.attention_norm(x), cosine, sine))
        result: Tensor = x + self.ffn_post_norm(self.ffn(self.ffn_norm(x)))
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

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__(size, eps=config.norm_eps)  # pyright: ignore[reportUnknownMemberType]  # torch's is untyped
        self.offset = config.norm_offset

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight.float()
        weight = weight + 1.0 if self.offset else weight
        result = F.rms_norm(x.float(), self.normalized_shape, weight, self.eps)
        # Once here, not in each product: each would keep a copy for its backward pass.
        kind = x.device.type
        return result.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else result


class Bias(nn.Module):
    """A bias of the results of a layer whose outputs a tensor axis may shard; it is whole on each device.

    Attributes:
        part: Index of this device's part.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.part = 0
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        first = self.part * x.shape[-1]
        return x + self.weight[first : first + x.shape[-1]].to(x.dtype)


class Attention(nn.Module):
    """Causal attention; each key and value head serves heads / kv_heads query heads."""

    def __init__(self, config: ModelConfig, window: int) -> None:
        super().__init__()
        self.head_dim, self.window = config.head_dim, window
        self.scale, self.softcap = config.score_scale, config.attention_softcap
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.grouped = config.kv_heads != config.heads
        self.query = Linear(config.dim, wide, bias=False)
        self.key = Linear(config.dim, narrow, bias=False)
        self.value = Linear(config.dim, narrow, bias=False)
        self.out = Linear(wide, config.dim, bias=False)
        biases = (Bias(size) if config.qkv_bias else nn.Identity() for size in (wide, narrow, narrow))
        self.query_bias, self.key_bias, self.value_bias = biases
        norms = (Norm(config, self.head_dim) if config.qk_norm else nn.Identity() for _ in range(2))
        self.query_norm, self.key_norm = norms

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            bias(layer(x)).view(batch, length, -1, self.head_dim)
            for layer, bias in (
                (self.query, self.query_bias),
                (self.key, self.key_bias),
                (self.value, self.value_bias),
            )
        )
        query = apply_rotary(self.query_norm(query), cosine, sine)
        key = apply_rotary(self.key_norm(key), cosine, sine)
        if self.softcap:
            mixed = attend_with_softcap(query, key, value, self.window, self.scale, self.softcap)
            capped: Tensor = self.out(mixed.reshape(batch, length, -1))
            return capped
        mask = make_window_mask(length, self.window, x.device) if 0 < self.window < length else None
        grouped = self.grouped
        if grouped and not supports_grouped_heads(query.device.type, query.dtype, masked=mask is not None):
            key, value = (repeat_heads(part, query.shape[2] // part.shape[2]) for part in (key, value))
            grouped = False
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
            scale=self.scale,
            enable_gqa=grouped,
        )
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return result


def attend_with_softcap(query: Tensor, key: Tensor, value: Tensor, window: int, scale: float, softcap: float) -> Tensor:
    """Compute causal attention with bounded scores, which no fused kernel of torch 2.13 has, by plain products.

    Args:
        query: Shape (batch, length, heads, head_dim).
        key: Shape (batch, length, kv_heads, head_dim).
        value: Shape (batch, length, kv_heads, head_dim).
        window: Newest keys that a query attends to; 0 for all.
        scale: Factor of the scores.
        softcap: Bound of the scores.

    Returns:
        The shape of `query`.
    """
    batch, length, heads, width = query.shape
    grouped = query.view(batch, length, key.shape[2], -1, width)
    scores = torch.einsum("bqkgd,bskd->bkgqs", grouped, key).float() * scale
    hidden = ~make_window_mask(length, window or length, query.device)
    shares = (softcap * torch.tanh(scores / softcap)).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return torch.einsum("bkgqs,bskd->bqkgd", shares.to(value.dtype), value).reshape(batch, length, heads, width)


def make_window_mask(length: int, window: int, device: torch.device) -> Tensor:
    """Return which key (column) each query (row) attends to: itself, and the `window` - 1 before it."""
    position = torch.arange(length, device=device)
    distance = position[:, None] - position
    return (distance >= 0) & (distance < window)


def apply_rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + half}) of a head in float32, and return x's type.

    Args:
        x: Shape (batch, length, heads, head_dim).
        cosine: Shape (length, head_dim / 2).
        sine: Shape (length, head_dim / 2).
    """
    cosine, sine = cosine[:, None], sine[:, None]
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)


def supports_grouped_heads(device: str, dtype: torch.dtype, *, masked: bool = False) -> bool:
    """Return whether torch's fused attention accepts fewer key heads than query heads.

    In torch 2.13 all kernels do, except CUDA's only kernel for float32, which is also its only one for a mask.
    """
    return device != "cuda" or (dtype != torch.float32 and not masked)


def repeat_heads(heads: Tensor, times: int) -> Tensor:
    """Repeat each head `times` times in a row; `heads` has shape (batch, length, heads, head_dim)."""
    return heads[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class FeedForward(nn.Module):
    """Gated feed-forward (SwiGLU, or GeGLU with `gelu_tanh`)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gelu = config.activation == "gelu_tanh"
        self.gate = Linear(config.dim, config.hidden, bias=False)
        self.up = Linear(config.dim, config.hidden, bias=False)
        self.down = Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        active = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        result: Tensor = self.down(active * self.up(x))
        return result
