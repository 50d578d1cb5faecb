"""Counts what was tried and was wrong, such as sign-ins, so that nothing is found by trying."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_WRONG = 10  # in GUESS_SECONDS, for each member or network
_MOST_KEPT = 10_000  # then those are forgotten that count no more
GUESS_SECONDS = 600.0


@dataclass(kw_only=True)
class GuessCounter:
    """What was wrong by member or network, of this process. Safe for several threads.

    Attributes:
        most: Within GUESS_SECONDS.
        clock: The time in seconds.
    """

    most: int = MOST_WRONG
    clock: Callable[[], float] = time.monotonic
    _wrong: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def may_guess(self, who: str) -> bool:
        """Whether a member or network may try again."""
        with self._lock:
            return len(self._list_recent(who)) < self.most

    def note_wrong(self, who: str) -> None:
        """Count what was wrong."""
        with self._lock:
            if len(self._wrong) >= _MOST_KEPT:
                self._wrong = {one: recent for one in self._wrong if (recent := self._list_recent(one))}
            self._wrong[who] = [*self._list_recent(who), self.clock()]

    def _list_recent(self, who: str) -> list[float]:
        return [at for at in self._wrong.get(who, []) if self.clock() - at < GUESS_SECONDS]
