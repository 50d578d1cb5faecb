"""Adafactor (Shazeer and Stern 2018): second moments of a matrix are stored as one number per row and per column.

The formula is the same in every engine. g is the clipped gradient, t the number of steps including this one, b =
optim.beta2, mean over a dimension of the whole tensor, all in float32; optim.beta1 and optim.eps are not used:

    s = g * g + 1e-30
    matrix:  row    = b * row    + (1 - b) * mean(s, over columns)      shape (rows,)
             column = b * column + (1 - b) * mean(s, over rows)         shape (columns,)
             u = g * rsqrt(row / mean(row)) * rsqrt(column / (1 - b**t))   (multiplied in this order)
    vector:  full = b * full + (1 - b) * s
             u = g * rsqrt(full / (1 - b**t))
    u = u / max(1, rms(u))                                              rms over the whole tensor
    w = w * (1 - rate * weight_decay) - rate * u                        decay: matrices only

(The bias correction of `row` cancels in row / mean(row).) State begins as zeros and is saved without bias correction,
as `optimizer/<parameter>/row` and `/column`, or `/full`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.config import OptimConfig
from trainer.shape.layout import get_layout
from trainer.shape.mesh import Mesh
from trainer.torch_engine.optimizer import Moment
from trainer.torch_engine.parallel import AxisGroups
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import dist, foreach, split_flat

_EPSILON = 1e-30  # added to squares, so that no reciprocal root is taken of zero


class Adafactor:
    """Adafactor as a trainer.torch_engine.optimizer.Optimizer; means of sharded tensors are sums over mesh axes."""

    def __init__(self, slots: Sequence[Slot], config: OptimConfig, mesh: Mesh, groups: AxisGroups) -> None:
        self._slots, self._config = slots, config
        self._groups = {"fsdp": (mesh.fsdp, groups.fsdp), "tensor": (mesh.tensor, groups.tensor)}
        self._moments = [_zeros(slot) for slot in slots]

    def moments(self) -> Sequence[Moment]:
        return [moment for moments in self._moments for moment in moments]

    @torch.no_grad()
    def apply(self, gradients: Sequence[Tensor], factor: Tensor | None, rate: float, step: int) -> None:
        if factor is not None:
            foreach._foreach_mul_(list(gradients), factor)
        correction = torch.full((1,), 1.0 - self._config.beta2 ** (step + 1), device=gradients[0].device)
        self._update_moments(gradients)
        updates = self._updates(gradients, correction)
        squares = torch.stack([update.square().sum() for update in updates])
        for axis in ("tensor", "fsdp"):
            self._sum_where(squares, axis)
        for slot, update, square in zip(self._slots, updates, squares, strict=True):
            update.div_((square / slot.parameter.size).sqrt().clamp(min=1.0))
            if slot.parameter.decays:
                slot.weight.mul_(1.0 - rate * self._config.weight_decay)
            slot.weight.sub_(update, alpha=rate)

    def _update_moments(self, gradients: Sequence[Tensor]) -> None:
        """Move every moment towards this step's mean squares."""
        sums = [
            (gradient.square() + _EPSILON).sum(dim=1 - moment.axis)
            if moment.axis is not None
            else gradient.square() + _EPSILON
            for gradient, moments in zip(gradients, self._moments, strict=True)
            for moment in moments
        ]
        # A sum along a sharded dimension is complete after a sum over the axis that shards it.
        for axis in ("tensor", "fsdp"):
            self._sum_over(
                [
                    value
                    for value, moment in zip(sums, self.moments(), strict=True)
                    if moment.axis is not None and _axes(moment.slot)[1 - moment.axis] == axis
                ],
                axis,
            )
        for value, moment in zip(sums, self.moments(), strict=True):
            across = 1 if moment.axis is None else moment.slot.parameter.shape[1 - moment.axis]
            moment.values.lerp_(value / across, 1.0 - self._config.beta2)

    def _updates(self, gradients: Sequence[Tensor], correction: Tensor) -> list[Tensor]:
        totals = torch.stack([moments[0].values.sum() for moments in self._moments])
        for axis in ("tensor", "fsdp"):
            self._sum_over(
                [
                    totals[at : at + 1]  # not slot.position: frozen weights are in no list here
                    for at, slot in enumerate(self._slots)
                    if slot.parameter.decays and _axes(slot)[0] == axis
                ],
                axis,
            )
        updates: list[Tensor] = []
        for gradient, moments, total in zip(gradients, self._moments, totals, strict=True):
            if len(moments) == 1:
                updates.append(gradient * (moments[0].values / correction).rsqrt())
                continue
            row, column = (moment.values for moment in moments)
            mean = total / moments[0].slot.parameter.shape[0]
            updates.append(gradient * (row / mean).rsqrt()[:, None] * (column / correction).rsqrt())
        return updates

    def _sum_where(self, squares: Tensor, axis: str) -> None:
        """Sum the numbers of the slots that the axis shards."""
        self._sum_over([squares[at : at + 1] for at, slot in enumerate(self._slots) if axis in _axes(slot)], axis)

    def _sum_over(self, values: Sequence[Tensor], axis: str) -> None:
        """Sum the values in place over the devices of an axis, in one message."""
        size, group = self._groups[axis]
        if size == 1 or not values:
            return
        flat = torch.cat([value.flatten() for value in values])
        dist.all_reduce(flat, group=group)
        for value, whole in zip(values, split_flat(flat, [math.prod(v.shape) for v in values]), strict=True):
            value.copy_(whole.view_as(value))


def _zeros(slot: Slot) -> tuple[Moment, ...]:
    if not slot.parameter.decays:
        return (Moment(slot=slot, suffix="full", values=torch.zeros_like(slot.weight)),)
    row, column = slot.weight.shape
    return (
        Moment(slot=slot, suffix="row", values=slot.weight.new_zeros(row), axis=0),
        Moment(slot=slot, suffix="column", values=slot.weight.new_zeros(column), axis=1),
    )


def _axes(slot: Slot) -> tuple[str | None, ...]:
    """Return the mesh axis that shards each dimension."""
    return get_layout(slot.parameter).spec(len(slot.parameter.shape))
