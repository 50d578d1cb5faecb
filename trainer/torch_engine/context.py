"""The context axis in torch: which tokens of a row a process has, and the ring on which its keys and values travel.

A row is cut into two parts for each of the C processes that share it. Process i has part i and part 2 C - 1 - i, so
that all have as much to do under a causal mask. trainer/shape/mesh.py says which devices share rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextShare:
    """This process among those that share its rows.

    Attributes:
        group: Name of their process group, of which collectives that torch.compile can trace are called.
        size: Number of processes.
        index: Of this one.
    """

    group: str
    size: int
    index: int


def list_parts(share: ContextShare, turn: int = 0) -> tuple[int, int]:
    """Return the early and the late part of a row that this process has, or those that reach it after so many turns."""
    source = (share.index - turn) % share.size
    return source, 2 * share.size - 1 - source


def take_own_tokens(share: ContextShare | None, values: Tensor) -> Tensor:
    """Return this process's part of values whose second dimension is that of the tokens of whole rows."""
    if share is None:
        return values
    size = values.shape[1] // (2 * share.size)
    return torch.cat([values[:, part * size : (part + 1) * size] for part in list_parts(share)], dim=1)


def list_positions(share: ContextShare, tokens: int, device: torch.device, turn: int = 0) -> Tensor:
    """Return the positions of `tokens` tokens, those of this process, or of the one whose keys it has at this turn."""
    size = tokens // 2
    return torch.cat([torch.arange(size, device=device) + part * size for part in list_parts(share, turn)])


def start_sending(share: ContextShare, values: Tensor) -> Tensor:
    """Start to send a flat tensor to the next process, and return that of the one before, for `finish_sending`."""
    sent, received = [0] * share.size, [0] * share.size
    sent[(share.index + 1) % share.size] = received[(share.index - 1) % share.size] = values.numel()
    functional: Any = torch.ops._c10d_functional
    arriving: Tensor = functional.all_to_all_single(values, received, sent, share.group)
    return arriving


def finish_sending(arriving: Tensor) -> Tensor:
    """Wait for what `start_sending` has started."""
    functional: Any = torch.ops._c10d_functional
    arrived: Tensor = functional.wait_tensor(arriving)
    return arrived
