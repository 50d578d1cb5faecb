"""Time as the engine sees it: the real one, or a simulated one that a test or a rehearsal moves."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """now: seconds since the epoch. sleep: let so many seconds pass; a simulated clock jumps instead."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
