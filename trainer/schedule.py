"""The learning rate of each step: linear warm-up, then by `optim.schedule` down to a floor, or level."""

from __future__ import annotations

import math

from trainer.config import OptimConfig


def learning_rate(optim: OptimConfig, steps: int, step: int) -> float:
    """Return the rate for the step with this index (the first is 0) of `steps` in all.

    cosine: half a cosine from the peak to the floor. wsd: level at the peak, then a straight line to the floor over the
    last `optim.decay` of all steps. constant: level. Steps past the end keep the last rate, so a longer run that starts
    from a finished one is well defined.
    """
    if step < optim.warmup:
        return optim.lr * (step + 1) / optim.warmup
    return optim.lr * _share(optim, steps, step)


def _share(optim: OptimConfig, steps: int, step: int) -> float:
    if optim.schedule == "constant":
        return 1.0
    if optim.schedule == "wsd":
        length = max(1.0, min(optim.decay * steps, steps - optim.warmup))
        left = max(0.0, min(1.0, (steps - step) / length))
        return optim.floor + (1.0 - optim.floor) * left
    progress = min(1.0, (step - optim.warmup) / max(1, steps - optim.warmup))
    return optim.floor + (1.0 - optim.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))
