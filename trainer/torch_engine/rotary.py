"""Rotary positions: each pair (x_i, x_{i + half}) of a head is turned by an angle that grows with the position."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_table(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, each of shape (length, head_dim / 2), float32 on the processor."""
    with torch.device("cpu"):
        rates = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x: (batch, length, heads, head_dim); cosine, sine: (length, head_dim / 2). In float32; returns x's type."""
    cosine, sine = cosine[:, None], sine[:, None]
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)
