"""The mean loss, in nats per token, from the last hidden state.

For small logits it is plain torch, which compiles well. For large logits, and a vocabulary that is sharded over the
tensor axis, it is computed slice by slice together with the gradients, so that the logits never all exist nor
twice. A compiled slice reads its logits at most three times; otherwise they are read and written ten times, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch import Tensor

from trainer.torch_engine.slots import get_local_tensor
from trainer.torch_engine.untyped import dist

_IGNORED = -100  # any negative number

Group: TypeAlias = Any  # torch.distributed.ProcessGroup, which exists only in builds with distributed
Slicer: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""`slicer(logits, answers, share)` returns the loss of each token, shape (tokens,), and the gradient of the sum times
`share` by the logits, in the logits' type and shape (tokens, vocab). It must not modify its arguments."""


@dataclass(frozen=True, slots=True)
class VocabularyShare:
    """The rows of the head's weight on this process, and the group of processes that have the others."""

    group: Group
    first: int
    count: int


def compute_mean_loss(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0) -> Tensor:
    """Compute the mean loss from all logits together.

    Args:
        hidden: Shape (batch, length, dim).
        weight: Shape (vocab, dim).
        targets: Shape (batch, length).
        softcap: Bound of the logits; 0 for none.
    """
    logits = cap_logits(F.linear(hidden, weight).float(), softcap)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def cap_logits(logits: Tensor, softcap: float) -> Tensor:
    """Return the logits within the bound, which 0 lifts."""
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def compute_marked_loss(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0) -> Tensor:
    """Compute the same loss where negative targets, which are not trained on, add 0 to the mean over all targets."""
    logits = cap_logits(F.linear(hidden, weight).float(), softcap)
    counted = targets.flatten()
    counted = counted.masked_fill(counted < 0, _IGNORED)
    total = F.cross_entropy(logits.flatten(0, 1), counted, ignore_index=_IGNORED, reduction="sum")
    return total / counted.numel()


def compute_sliced_loss(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    rows: int,
    share: VocabularyShare | None = None,
    slicer: Slicer | None = None,
    marked: bool = False,
    softcap: float = 0.0,
) -> Tensor:
    """Compute the same loss from at most `rows` tokens at a time.

    Args:
        hidden: Shape (batch, length, dim); with `share` of this process's tokens of each row.
        weight: Shape (vocab, dim), or this process's rows of it.
        targets: Shape (batch, length), of whole rows.
        rows: Most tokens per slice; with `share` most of this process's tokens.
        share: The rows of the vocabulary that `weight` holds; every process of the group gets the same loss of all
            their tokens, and the whole gradient of `hidden`.
        slicer: A compiled `compute_slice_loss`.
        marked: Negative targets, which are not trained on, add 0 to the mean over all targets.
        softcap: Bound of the logits; 0 for none.
    """
    chosen = slicer or partial(_slice, share)
    chosen = _cap_slices(chosen, softcap) if softcap else chosen
    chosen = _skip_unmarked(chosen) if marked else chosen
    weight = get_local_tensor(weight)
    dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
    function: Any = _SlicedLoss  # torch leaves `apply` untyped
    result: Tensor = function.apply(hidden, weight, targets, rows, chosen, share, dtype)
    return result


class _SlicedLoss(torch.autograd.Function):
    """The sliced loss; its gradients are computed in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        rows: int,
        slicer: Slicer,
        share: VocabularyShare | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        flat = hidden.detach().flatten(0, 1)
        # Of each process's tokens, which a row has one after the other.
        answers: Tensor = targets.view(len(targets), -1, hidden.shape[1]).transpose(0, 1).flatten(1)
        used = weight.detach() if dtype is None else weight.detach().to(dtype)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        to_hidden = torch.empty_like(flat, dtype=torch.float32)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        with torch.autocast(hidden.device.type, enabled=False):
            for part in _slices(len(flat), rows):
                x = _gather(share, flat[part].to(used.dtype), len(answers))
                losses, slope = slicer(x @ used.T, answers[:, part].flatten(), 1.0 / answers.numel())
                total += losses.sum()
                to_hidden[part] = _scatter_sum(share, slope @ used, len(answers))
                if to_weight is not None:
                    to_weight += slope.T @ x
        ctx.save_for_backward(to_hidden.view_as(hidden).to(hidden.dtype), to_weight)
        return total / answers.numel()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_weight = ctx.saved_tensors
        # In place: the head's gradient is as large as the head, and nothing reads these again.
        scaled = None if to_weight is None else to_weight.mul_(upstream[0])
        return to_hidden.mul_(upstream[0]), scaled, None, None, None, None, None


def compute_slice_loss(logits: Tensor, answers: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Implement Slicer for a compiler: nothing is scattered, so its loops can be fused."""
    wide = logits.float()
    wide = wide - wide.amax(dim=-1, keepdim=True)
    powers = wide.exp()
    sums = powers.sum(dim=-1, keepdim=True)
    hit = torch.arange(logits.shape[-1], device=logits.device) == answers[:, None]
    chosen = torch.where(hit, wide, 0.0).sum(dim=-1)
    slope = torch.where(hit, powers / sums - 1.0, powers / sums) * share
    return sums.squeeze(1).log() - chosen, slope.to(logits.dtype)


def _cap_slices(slicer: Slicer, softcap: float) -> Slicer:
    def slice_capped(logits: Tensor, answers: Tensor, share: float) -> tuple[Tensor, Tensor]:
        bounded = torch.tanh(logits.float() / softcap)
        losses, slope = slicer(softcap * bounded, answers, share)
        return losses, (slope * (1.0 - bounded.square())).to(logits.dtype)

    return slice_capped


def _skip_unmarked(slicer: Slicer) -> Slicer:
    def slice_marked(logits: Tensor, answers: Tensor, share: float) -> tuple[Tensor, Tensor]:
        counted = answers >= 0
        losses, slope = slicer(logits, answers.clamp(min=0), share)
        return losses * counted, slope * counted[:, None]

    return slice_marked


def _slice(vocabulary: VocabularyShare | None, logits: Tensor, answers: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Implement Slicer without a compiler, also for a sharded vocabulary."""
    dtype, logits = logits.dtype, logits.float()
    highest = logits.amax(dim=-1, keepdim=True)
    if vocabulary is not None:
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=vocabulary.group)
    logits = logits - highest
    first, count = (0, logits.shape[-1]) if vocabulary is None else (vocabulary.first, vocabulary.count)
    mine = (answers >= first) & (answers < first + count)
    place = (answers - first).clamp(0, count - 1)[:, None]
    chosen = logits.gather(1, place).squeeze(1) * mine
    slope = logits.exp_()
    sums = torch.stack((slope.sum(dim=-1), chosen))
    if vocabulary is not None:
        dist.all_reduce(sums, group=vocabulary.group)
    slope.div_(sums[0][:, None])
    slope.scatter_add_(1, place, -mine.float()[:, None])
    return sums[0].log() - sums[1], slope.mul_(share).to(dtype)


def _gather(share: VocabularyShare | None, own: Tensor, processes: int) -> Tensor:
    """Return the rows of all processes of the group, one after the other."""
    if share is None:
        return own
    functional: Any = torch.ops._c10d_functional  # dist's own functions change their names between versions
    found: Tensor = functional.all_gather_into_tensor(own, processes, share.group.group_name)
    return cast("Tensor", functional.wait_tensor(found))


def _scatter_sum(share: VocabularyShare | None, every: Tensor, processes: int) -> Tensor:
    """Return this process's rows of the sum over the processes of the group, in float32."""
    if share is None:
        return every
    functional: Any = torch.ops._c10d_functional  # see above
    found: Tensor = functional.reduce_scatter_tensor(every.float(), "sum", processes, share.group.group_name)
    return cast("Tensor", functional.wait_tensor(found))


def _slices(total: int, rows: int) -> Iterator[slice]:
    for first in range(0, total, rows):
        yield slice(first, min(first + rows, total))
