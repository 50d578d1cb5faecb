"""Clocks of simulated time; each implements orchestrator.clock.Clock in seconds since the epoch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from orchestrator.simulator.files import exclusive, read_json, write_json

START = 1_800_000_000.0  # where a simulated clock begins when nothing is said: a round number in 2027


class ManualClock:
    """Clock that moves only by `advance` and `sleep`, so that a waiting loop never really waits."""

    def __init__(self, now: float = START) -> None:
        self._now = now
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Raises:
            ValueError: The time is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot be advanced by {seconds} s")
        with self._lock:
            self._now += seconds

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))


class ScaledClock:
    """Clock that runs `speed` times as fast as the real one; processes that share a cloud must share `origin`."""

    def __init__(self, speed: float, origin: float | None = None) -> None:
        if speed <= 0:
            raise ValueError(f"a clock cannot run at speed {speed}")
        self.speed = speed
        self.origin = time.time() if origin is None else origin

    def now(self) -> float:
        return self.origin + (time.time() - self.origin) * self.speed

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds) / self.speed)


class StoredClock:
    """Manual clock in a file, shared by several processes."""

    def __init__(self, path: Path, start: float = START) -> None:
        self._path, self._start = path, start

    def now(self) -> float:
        stored = read_json(self._path)
        return self._start if stored is None else float(stored["now"])

    def advance(self, seconds: float) -> None:
        """Move the stored clock forward.

        Raises:
            ValueError: The time is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot be advanced by {seconds} s")
        with exclusive(self._path.with_suffix(".lock")):
            write_json(self._path, {"now": self.now() + seconds})

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))
