"""The corners of torch that it annotates only in part, so that no strict checker can follow them: typed here, once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed
import torch.utils.checkpoint
from torch import Tensor

from trainer.engine import FloatArray

dist: Any = torch.distributed
foreach: Any = torch
"""For torch._foreach_*, the operations on lists of tensors, and torch._fused_adamw_."""


def vector_norm(tensor: Tensor) -> Tensor:
    unchecked: Any = torch.linalg
    result: Tensor = unchecked.vector_norm(tensor)
    return result


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each; shape (number of tensors,)."""
    return torch.stack(foreach._foreach_norm(list(tensors)))


def split(flat: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    unchecked: Any = flat
    return list(unchecked.split(list(sizes)))


def from_numpy(array: FloatArray) -> Tensor:
    """Shares the memory."""
    unchecked: Any = torch
    result: Tensor = unchecked.from_numpy(array)
    return result


def backward(loss: Tensor) -> None:
    unchecked: Any = loss
    unchecked.backward()


def recompute(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """Call it, keep nothing that it computes on the way, and call it again in the backward pass.

    Nothing may be drawn at random in it: the generators are not kept.
    """
    unchecked: Any = torch.utils.checkpoint
    result: Tensor = unchecked.checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return result


def pretending() -> bool:
    """Whether tensors have shapes, but no values that could be looked at."""
    from torch._guards import active_fake_mode

    return active_fake_mode() is not None


def dynamo() -> Any:
    """The front of torch.compile. It is slow to import, so only on demand."""
    return importlib.import_module("torch._dynamo")
