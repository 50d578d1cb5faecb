"""Where the time goes between two logged steps."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds a step, as means. whole: from one line to the next. compute: None when nobody measured it."""

    whole: float
    data: float
    compute: float | None


class Meter:
    """`waited_for_data` and `computed` are told seconds; `step` ends a step."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0
        self._data = 0.0
        self._compute: float | None = None

    def waited_for_data(self, seconds: float) -> None:
        self._data += seconds

    def computed(self, seconds: float) -> None:
        """Time in the engine: beginning a step, and waiting for its numbers."""
        self._compute = (self._compute or 0.0) + seconds

    def step(self) -> None:
        self._steps += 1

    def take(self) -> Spent:
        """What was spent since the last take; then begin again."""
        now, steps = time.perf_counter(), max(1, self._steps)
        compute = None if self._compute is None else self._compute / steps
        spent = Spent((now - self._start) / steps, self._data / steps, compute)
        self._start, self._steps, self._data, self._compute = now, 0, 0.0, None
        return spent
