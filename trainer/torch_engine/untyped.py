"""Typed wrappers of the parts of torch whose annotations are incomplete."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from trainer.engine import FloatArray

dist: Any = torch.distributed
foreach: Any = torch
"""Module torch, for torch._foreach_*, the operations on lists of tensors, and torch._fused_adamw_."""


def compute_norm(tensor: Tensor) -> Tensor:
    """Return the Euclidean norm of all values, shape ()."""
    unchecked: Any = torch.linalg
    result: Tensor = unchecked.vector_norm(tensor)
    return result


def compute_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor, shape (number of tensors,)."""
    return torch.stack(foreach._foreach_norm(list(tensors)))


def split_flat(flat: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Split a flat tensor into views of the given sizes."""
    unchecked: Any = flat
    return list(unchecked.split(list(sizes)))


def from_numpy(array: FloatArray) -> Tensor:
    """Return a tensor that shares the array's memory."""
    unchecked: Any = torch
    result: Tensor = unchecked.from_numpy(array)
    return result


def run_backward(loss: Tensor) -> None:
    """Run the backward pass of a scalar."""
    unchecked: Any = loss
    unchecked.backward()


def is_fake_mode_active() -> bool:
    """Return whether tensors have shapes but no values."""
    from torch._guards import active_fake_mode

    return active_fake_mode() is not None


def import_dynamo() -> Any:
    """Import the front end of torch.compile, which is slow to import."""
    return importlib.import_module("torch._dynamo")
