"""Rotary positions: each pair (x_i, x_{i + half}) of a head is rotated by an angle that grows with the position."""

from __future__ import annotations

import torch
from torch import Tensor


def make_rotary_table(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of each position's angles, each of shape (length, head_dim / 2), float32 on the CPU."""
    with torch.device("cpu"):
        rates = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        return angles.cos().float(), angles.sin().float()


def apply_rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the pairs in float32, and return x's type.

    Args:
        x: Shape (batch, length, heads, head_dim).
        cosine: Shape (length, head_dim / 2).
        sine: Shape (length, head_dim / 2).
    """
    cosine, sine = cosine[:, None], sine[:, None]
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)
