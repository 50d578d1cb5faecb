"""A decoder-only transformer over bytes: rotary positions, RMS norm, gated feed-forward, grouped heads.

Plain torch with static shapes; nothing here knows about devices or other ranks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor, nn

from trainer.config import VOCAB, ModelConfig

_INIT_STD = 0.02
_EPS = 1e-5


class Transformer(nn.Module):
    """`model(rows)` is the mean loss in nats a byte; rows: (batch, seq_len + 1), any integer type."""

    def __init__(self, config: ModelConfig, seq_len: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=_EPS)
        self.head = nn.Linear(config.dim, VOCAB, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        cosine, sine = rotary_table(seq_len, config.head_dim, config.rope_theta)
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows.long()
        logits = self.logits(rows[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    def logits(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, length up to seq_len). Returns (batch, length, 256)."""
        length = tokens.shape[1]
        cosine, sine = self.cosine[:length], self.sine[:length]
        x: Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cosine, sine)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def initialise(self, seed: int) -> None:
        """Draw the weights: the same on every rank and device, since the generator is the processor's."""
        generator = torch.Generator().manual_seed(seed)
        # Layers that add to the residual stream start smaller, so its variance does not grow with depth.
        residual_std = _INIT_STD / (2 * len(self.blocks)) ** 0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim < 2:
                    parameter.fill_(1.0)
                else:
                    std = residual_std if name.endswith(("attention.out.weight", "ffn.down.weight")) else _INIT_STD
                    parameter.normal_(0.0, std, generator=generator)


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=_EPS)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=_EPS)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        result: Tensor = x + self.ffn(self.ffn_norm(x))
        return result


class Attention(nn.Module):
    """Causal attention; each key and value head serves heads / kv_heads query heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.qkv = nn.Linear(config.dim, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, dim = x.shape
        heads = self.qkv(x).view(batch, length, self.heads + 2 * self.kv_heads, self.head_dim).transpose(1, 2)
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        if self.kv_heads != self.heads:
            shared = self.heads // self.kv_heads
            key, value = (t.repeat_interleave(shared, dim=1) for t in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return result


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


def rotary_table(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, each of shape (length, head_dim / 2)."""
    rates = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + half}) by its angle. x: (batch, heads, length, head_dim)."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def flops_per_token(config: ModelConfig, parameters: int, seq_len: int) -> float:
    """Training FLOPs of one token: 6 a weight, and 6 x layers x dim x seq_len for causal attention.

    12 x layers x dim x seq_len is the full attention; causal masks need half of it. An embedding that is not
    tied is a look-up and does not count.
    """
    weights = parameters if config.tied else parameters - VOCAB * config.dim
    return 6.0 * weights + 6.0 * config.layers * config.dim * seq_len


MFU_FORMULA = "(6*weights + 6*layers*dim*seq_len) * tokens_per_s / peak_bf16"
