"""The clock of the engine: the real one, or a simulated one that a test or a rehearsal advances."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that long; a simulated clock advances instead."""
        ...


class RealClock:
    """The clock of this computer."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)
