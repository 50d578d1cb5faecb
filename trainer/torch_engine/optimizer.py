"""What the engine needs of an optimizer, and the averaged weights beside it.

State is made at once, so that a checkpoint has somewhere to load into and lazy devices trace one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from trainer.config import OptimConfig
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import foreach


@dataclass(frozen=True, slots=True)
class Moment:
    """A state tensor of a slot. suffix: the last part of its name. axis: the dimension of the parameter along which it
    lies, when it has only one of a matrix; None: as the parameter."""

    slot: Slot
    suffix: str
    values: Tensor
    axis: int | None = None


class Optimizer(Protocol):
    def moments(self) -> Sequence[Moment]:
        """All state. The tensors are changed in place, never replaced."""
        ...

    def apply(self, gradients: Sequence[Tensor], factor: Tensor | None, rate: float, step: int) -> None:
        """Change the weights. gradients: one for each slot, may be overwritten. factor: what they are multiplied by
        first (clipping); None: nothing. step: steps done before this one, from 0."""
        ...


class Averages:
    """An exponential moving average of the weights, begun with their first values."""

    def __init__(self, slots: Sequence[Slot], config: OptimConfig) -> None:
        self._weights = [slot.weight for slot in slots]
        self._slots, self._share = slots, 1.0 - config.ema
        self._values = [weight.clone() for weight in self._weights]

    def moments(self) -> Sequence[Moment]:
        return [Moment(slot, "", values) for slot, values in zip(self._slots, self._values, strict=True)]

    def restart(self) -> None:
        """From the present weights."""
        foreach._foreach_copy_(self._values, self._weights)

    def apply(self) -> None:
        foreach._foreach_lerp_(self._values, self._weights, self._share)
