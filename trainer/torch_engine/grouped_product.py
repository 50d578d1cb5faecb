"""Products of consecutive rows, each group of them with its own matrix, as one operation for eager and compiled code.

torch's own operation, torch._grouped_mm, takes float32 in eager mode alone: its form for compilers and for tensors
without values (torch 2.13, _meta_registrations.py) accepts only bf16. Here both are one opaque operation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_unchecked: Any = torch  # torch leaves the operation, and registration of one, untyped


def multiply_groups(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply the rows of each group with the transpose of its matrix.

    Args:
        x: Shape (rows, in).
        weights: Of x's type, shape (groups, out, in); `in` and `out` are multiples of EXPERT_STEP.
        ends: int32, the index behind each group's last row, shape (groups,). Rows behind the last group have no
            defined result, and no defined gradient.

    Returns:
        Shape (rows, out).
    """
    result: Tensor = _multiply(x, weights, ends)
    return result


@_unchecked.library.custom_op("orch_trainer::multiply_groups", mutates_args=())  # type: ignore[untyped-decorator]  # see _unchecked
def _multiply(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    result: Tensor = _unchecked._grouped_mm(x, weights.transpose(1, 2), offs=ends)
    return result


@_unchecked.library.custom_op("orch_trainer::multiply_group_rows", mutates_args=())  # type: ignore[untyped-decorator]  # see _unchecked
def _multiply_rows(slope: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """Return slope.T @ x of each group, shape (groups, out, in)."""
    result: Tensor = _unchecked._grouped_mm(slope.T, x, offs=ends)
    # On Blackwell the kernel does not write the matrix of a group without rows: pytorch issue 172439 (January 2026).
    empty = ends == torch.cat((ends.new_zeros(1), ends[:-1]))
    return result.masked_fill_(empty[:, None, None], 0.0)


def _shape_product(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], weights.shape[1]))


def _shape_rows(slope: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty((ends.shape[0], slope.shape[1], x.shape[1]))


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weights, ends = ctx.saved_tensors
    slope = slope.contiguous()
    by_x = _multiply(slope, weights.transpose(1, 2), ends) if ctx.needs_input_grad[0] else None
    by_weights = _multiply_rows(slope, x, ends) if ctx.needs_input_grad[1] else None
    return by_x, by_weights, None


_multiply.register_fake(_shape_product)
_multiply_rows.register_fake(_shape_rows)
_multiply.register_autograd(_differentiate, setup_context=_keep)
