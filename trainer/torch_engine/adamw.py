"""AdamW with decoupled decay, as torch.optim.AdamW computes it, on plain tensors.

torch's class cannot hold weights on different meshes in one list, and counts steps in its own tensors; its kernel
supports both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.config import OptimConfig
from trainer.torch_engine.optimizer import Moment
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import foreach


class AdamW:
    """AdamW as a trainer.torch_engine.optimizer.Optimizer."""

    def __init__(self, slots: Sequence[Slot], config: OptimConfig, *, fused: bool) -> None:
        """Create zero moments.

        Args:
            slots: The weights.
            config: Rates and decay.
            fused: Whether the device has torch's fused kernel.
        """
        self._slots, self._config, self._fused = slots, config, fused
        self._means = [torch.zeros_like(slot.weight) for slot in slots]
        self._squares = [torch.zeros_like(slot.weight) for slot in slots]
        self._step = torch.zeros((), dtype=torch.float32, device=slots[0].weight.device)
        self._passes = (
            (config.weight_decay, [at for at, slot in enumerate(slots) if slot.parameter.decays]),
            (0.0, [at for at, slot in enumerate(slots) if not slot.parameter.decays]),
        )

    def moments(self) -> Sequence[Moment]:
        return [
            Moment(slot=slot, suffix=suffix, values=values)
            for suffix, every in (("exp_avg", self._means), ("exp_avg_sq", self._squares))
            for slot, values in zip(self._slots, every, strict=True)
        ]

    @torch.no_grad()
    def apply(self, gradients: Sequence[Tensor], factor: Tensor | None, rate: float, step: int) -> None:
        if self._fused:
            self._step.fill_(step + 1)
        elif factor is not None:
            foreach._foreach_mul_(list(gradients), factor)
        for decay, positions in self._passes:
            if not positions:
                continue
            chosen = (
                [self._slots[p].weight for p in positions],
                [gradients[p] for p in positions],
                [self._means[p] for p in positions],
                [self._squares[p] for p in positions],
            )
            if self._fused:
                self._kernel(*chosen, decay, rate, factor)
            else:
                self._plain(*chosen, decay, rate, step + 1)

    def _kernel(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        decay: float,
        rate: float,
        factor: Tensor | None,
    ) -> None:
        foreach._fused_adamw_(
            weights,
            gradients,
            means,
            squares,
            [],
            [self._step] * len(weights),
            lr=rate,
            beta1=self._config.beta1,
            beta2=self._config.beta2,
            weight_decay=decay,
            eps=self._config.eps,
            amsgrad=False,
            maximize=False,
            # The kernel divides by it, which saves a pass over the gradients.
            grad_scale=None if factor is None else factor.reciprocal(),
        )

    def _plain(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        decay: float,
        rate: float,
        step: int,
    ) -> None:
        # The rate and the corrections are tensors: as numbers they would be constants of a compiled program.
        beta1, beta2 = self._config.beta1, self._config.beta2
        device = weights[0].device
        size = torch.tensor(rate / (1.0 - beta1**step), device=device)
        correction = torch.tensor((1.0 - beta2**step) ** 0.5, device=device)
        foreach._foreach_lerp_(means, gradients, 1.0 - beta1)
        foreach._foreach_mul_(squares, beta2)
        foreach._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
        steps = foreach._foreach_sqrt(squares)
        foreach._foreach_div_(steps, correction)
        foreach._foreach_add_(steps, self._config.eps)
        steps = foreach._foreach_div(means, steps)
        foreach._foreach_mul_(steps, size)
        if decay:
            foreach._foreach_mul_(weights, torch.tensor(1.0 - rate * decay, device=device))
        foreach._foreach_sub_(weights, steps)
