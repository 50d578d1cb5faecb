"""When the time for a save has come (`checkpoint.minutes`): rank 0 decides, at steps on which all ranks compare.

The ranks' clocks differ, so each step of a save must be agreed on. A comparison costs a message, so there are few: each
one says at which step the next is, half of the remaining time later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.team import Team

_CHANCES = 5  # while a save is late: comparisons in the time between two saves, about


@dataclass(slots=True, kw_only=True)
class SaveClock:
    """The time since the last save began.

    Attributes:
        seconds: From the begin of a save to the next one; 0: never by time.
        team: A channel for decisions about saves.
        now: Seconds of a clock that never goes back; only that of rank 0 counts.
    """

    seconds: float
    team: Team
    now: Callable[[], float] = time.monotonic
    _began: float | None = None
    _before: tuple[int, float] | None = None  # step and time of the last comparison
    _next: int = 0

    def restart(self) -> None:
        """Count from now on: a save begins."""
        self._began = self.now()

    def compares_at(self, step: int) -> bool:
        """Return whether the ranks compare at this step; the same on every rank."""
        return self.seconds > 0 and step >= self._next

    def is_late(self, step: int) -> bool:
        """Return whether the time has come, by rank 0's clock; every rank calls it at a step on which they compare.

        Raises:
            PeerError: Another rank was lost.
        """
        now = self.now()
        began = self._began = now if self._began is None else self._began
        left = began + self.seconds - now
        steps = 1
        if self._before is not None:
            pace = (now - self._before[1]) / max(1, step - self._before[0])
            wait = left if left > 0 else self.seconds / _CHANCES
            steps = max(1, int(wait / 2 / max(pace, 1e-9)))
        self._before = (step, now)
        late, self._next = self.team.gather([left <= 0, step + steps])[0]
        return bool(late)
