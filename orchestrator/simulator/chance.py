"""Random numbers whose whole state is one integer, so that a stored cloud continues its sequence.

SplitMix64 (Steele, Lea and Flood, 2014): small, and good enough for durations and faults.
"""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw(state: int) -> tuple[int, float]:
    """Return the next state and a number in [0, 1)."""
    state = (state + _GOLDEN) & _MASK
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return state, ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


def spread(value: float, jitter: float, chance: float) -> float:
    """Scale `value` by a factor between 1 - jitter and 1 + jitter."""
    return value * (1.0 + jitter * (2.0 * chance - 1.0))


def waiting_time(mean: float, chance: float) -> float:
    """Return an exponentially distributed waiting time."""
    return -mean * math.log(1.0 - chance)
