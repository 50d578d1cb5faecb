"""From the last hidden state to the mean loss, in nats a token.

Small logits: plain torch, which compiles well. Large ones, and a vocabulary that is divided over the tensor axis: slice
by slice, with the gradients computed on the way, so that the logits never exist all at once nor twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  # the name everybody knows it by
from torch import Tensor

from trainer.torch_engine.slots import local
from trainer.torch_engine.untyped import dist

Group: TypeAlias = Any  # torch.distributed.ProcessGroup, which exists only in builds with distributed


@dataclass(frozen=True, slots=True)
class VocabularyShare:
    """The rows of the head's weight that this process has, and the processes that have the others."""

    group: Group
    first: int
    count: int


def mean_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """hidden: (batch, length, dim); weight: (vocab, dim); targets: (batch, length). All logits at once."""
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def sliced_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, rows: int, share: VocabularyShare | None = None
) -> Tensor:
    """The same number from at most `rows` tokens at once. share: weight holds only these rows of the vocabulary; every
    process of the group gets the same loss, and the whole gradient of `hidden`."""
    weight = local(weight)
    dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
    function: Any = _SlicedLoss  # torch leaves `apply` untyped
    result: Tensor = function.apply(hidden, weight, targets, rows, share, dtype)
    return result


class _SlicedLoss(torch.autograd.Function):
    """The gradients are those of the mean loss, kept until the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        rows: int,
        share: VocabularyShare | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        flat, answers = hidden.detach().flatten(0, 1), targets.flatten()
        used = weight.detach() if dtype is None else weight.detach().to(dtype)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        to_hidden = torch.empty_like(flat, dtype=torch.float32)
        to_weight = torch.zeros_like(weight, dtype=torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            for part in _slices(len(flat), rows):
                x = flat[part].to(used.dtype)
                losses, slope = _slice(x @ used.T, answers[part], share)
                total += losses.sum()
                slope = slope.div_(len(flat)).to(used.dtype)
                to_hidden[part] = slope @ used
                to_weight += slope.T @ x
        if share is not None:
            dist.all_reduce(to_hidden, group=share.group)
        ctx.save_for_backward(to_hidden.view_as(hidden).to(hidden.dtype), to_weight)
        return total / len(flat)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * upstream[0], to_weight * upstream[0], None, None, None, None


def _slice(logits: Tensor, answers: Tensor, share: VocabularyShare | None) -> tuple[Tensor, Tensor]:
    """Loss of each token, and its slope along the logits: softmax less one at the answer."""
    logits = logits.float()
    highest = logits.amax(dim=-1, keepdim=True)
    if share is not None:
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=share.group)
    logits = logits - highest
    first, count = (0, logits.shape[-1]) if share is None else (share.first, share.count)
    mine = (answers >= first) & (answers < first + count)
    place = (answers - first).clamp(0, count - 1)[:, None]
    chosen = logits.gather(1, place).squeeze(1) * mine
    slope = logits.exp_()
    sums = torch.stack((slope.sum(dim=-1), chosen))
    if share is not None:
        dist.all_reduce(sums, group=share.group)
    slope.div_(sums[0][:, None])
    slope.scatter_add_(1, place, -mine.float()[:, None])
    return sums[0].log() - sums[1], slope


def _slices(total: int, rows: int) -> Iterator[slice]:
    for first in range(0, total, rows):
        yield slice(first, min(first + rows, total))
