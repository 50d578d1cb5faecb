"""Measurement of where the time goes between two logged steps."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Mean seconds per step since the last line.

    Attributes:
        total_s: From one line to the next.
        data_s: Waiting for rows.
        compute_s: In the engine; None when not measured.
    """

    total_s: float
    data_s: float
    compute_s: float | None


class StepTimer:
    """Adds up the times of several steps, in seconds."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0
        self._data = 0.0
        self._compute: float | None = None

    def add_data_wait(self, seconds: float) -> None:
        """Add the seconds that were spent waiting for rows."""
        self._data += seconds

    def add_compute(self, seconds: float) -> None:
        """Add the seconds in the engine: starting a step, and waiting for its numbers."""
        self._compute = (self._compute or 0.0) + seconds

    def count_step(self) -> None:
        """Count a finished step."""
        self._steps += 1

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave out what is done within."""
        begun = time.perf_counter()
        yield
        self._start += time.perf_counter() - begun

    def take_means(self) -> StepTimes:
        """Return the means since the last call, and start again from zero."""
        now, steps = time.perf_counter(), max(1, self._steps)
        compute = None if self._compute is None else self._compute / steps
        times = StepTimes((now - self._start) / steps, self._data / steps, compute)
        self._start, self._steps, self._data, self._compute = now, 0, 0.0, None
        return times
