"""Interface of the optimizers, and the averaged weights.

State is allocated at the start, so that a checkpoint can be loaded into it and lazy devices trace one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from trainer.config import OptimConfig
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import foreach


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A state tensor of a slot.

    Attributes:
        slot: The weight.
        suffix: Last part of its name.
        values: The tensor.
        axis: For a row or column moment, the dimension of the parameter along which it extends; None when it has the
            parameter's shape.
    """

    slot: Slot
    suffix: str
    values: Tensor
    axis: int | None = None


class Optimizer(Protocol):
    """Updates the weights of a list of slots."""

    def moments(self) -> Sequence[Moment]:
        """Return all state; the tensors are changed in place and never replaced."""
        ...

    def apply(self, gradients: Sequence[Tensor], factor: Tensor | None, rate: float, step: int) -> None:
        """Update the weights.

        Args:
            gradients: One per slot; may be overwritten.
            factor: Multiplied with the gradients first (clipping); None for none.
            rate: Learning rate.
            step: Number of steps done before this one.
        """
        ...


class AveragedWeights:
    """An exponential moving average of the weights that starts from their initial values."""

    def __init__(self, slots: Sequence[Slot], config: OptimConfig) -> None:
        self._weights = [slot.weight for slot in slots]
        self._slots, self._share = slots, 1.0 - config.ema
        self._values = [weight.clone() for weight in self._weights]

    def moments(self) -> Sequence[Moment]:
        return [
            Moment(slot=slot, suffix="", values=values) for slot, values in zip(self._slots, self._values, strict=True)
        ]

    def restart(self) -> None:
        """Restart from the present weights."""
        foreach._foreach_copy_(self._values, self._weights)

    def apply(self) -> None:
        foreach._foreach_lerp_(self._values, self._weights, self._share)
