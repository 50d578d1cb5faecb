"""How often the loop waits for a step's numbers, where waiting costs: all ranks must look at the same steps."""

from __future__ import annotations

import time

from trainer.team import Team

SECONDS = 2.0
"""A wish to stop must be seen soon: a preempted machine has 30 s (Google) or 2 min (EC2)."""
_LOOKS_BEFORE = 3  # the first step compiles, the second may


class Cadence:
    """most: steps between two looks at most; all agree on fewer where so many take long. The first are looked at."""

    def __init__(self, team: Team, most: int) -> None:
        self._team = team
        self._every = most
        self._looks = 0
        self._last = (0, 0.0)

    def is_due(self, step: int) -> bool:
        return step % self._every == 0 or self._looks < _LOOKS_BEFORE

    def looked(self, step: int) -> None:
        """Numbers of this step were read. The same steps on every rank. Raises PeerError."""
        if self._every == 1:
            return
        self._looks += 1
        now = time.monotonic()
        before, self._last = self._last, (step, now)
        if self._looks == _LOOKS_BEFORE:
            slowest = max(self._team.gather((now - before[1]) / max(1, step - before[0])))
            self._every = max(1, min(self._every, int(SECONDS / max(slowest, 1e-9))))
