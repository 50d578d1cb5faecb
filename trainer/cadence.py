"""How often the loop waits for a step's numbers, on devices where waiting is expensive.

All ranks must wait at the same steps.
"""

from __future__ import annotations

import time

from trainer.team import Team

MAX_SECONDS_BETWEEN_READS = 2.0
"""A stop request must be noticed soon: a preempted machine has 30 s (Google) or 2 min (EC2)."""
_READS_BEFORE_MEASURING = 3  # the first step compiles, the second may


class Cadence:
    """The steps at which the loop reads a step's numbers; the same on every rank.

    The first steps are always read. If steps are slow, all ranks agree on reading more often.
    """

    def __init__(self, team: Team, most: int) -> None:
        """Start with the largest interval.

        Args:
            team: All ranks of the run.
            most: Largest number of steps between two reads.
        """
        self._team = team
        self._every = most
        self._reads = 0
        self._last = (0, 0.0)

    def is_due(self, step: int) -> bool:
        """Return whether the numbers of this step are to be read."""
        return step % self._every == 0 or self._reads < _READS_BEFORE_MEASURING

    def record_read(self, step: int) -> None:
        """Record that the numbers of this step were read; the same steps on every rank.

        Raises:
            PeerError: Another rank was lost.
        """
        if self._every == 1:
            return
        self._reads += 1
        now = time.monotonic()
        before, self._last = self._last, (step, now)
        if self._reads == _READS_BEFORE_MEASURING:
            slowest = max(self._team.gather((now - before[1]) / max(1, step - before[0])))
            self._every = max(1, min(self._every, int(MAX_SECONDS_BETWEEN_READS / max(slowest, 1e-9))))
