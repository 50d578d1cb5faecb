"""The learning rate of each step: linear warm-up, then half a cosine down to a floor."""

from __future__ import annotations

import math


def learning_rate(step: int, *, peak: float, warmup: int, steps: int, floor: float) -> float:
    """Rate for the step with this index (the first is 0).

    peak: the highest rate, reached after `warmup` steps. floor: the last rate as a share of the peak.
    Steps past the end keep the floor, so a longer run that starts from a finished one is well defined.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress)))
