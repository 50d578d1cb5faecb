"""Counts wrong codes, so that a short code cannot be found by trying."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_WRONG = 10  # in GUESS_SECONDS, for each member
GUESS_SECONDS = 600.0


@dataclass(kw_only=True)
class GuessCounter:
    """Wrong codes by member, of this process. Safe for several threads.

    Attributes:
        clock: The time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _wrong: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def may_guess(self, member: str) -> bool:
        """Whether a member may try another code."""
        with self._lock:
            recent = [at for at in self._wrong.get(member, []) if self.clock() - at < GUESS_SECONDS]
            self._wrong[member] = recent
            return len(recent) < MOST_WRONG

    def note_wrong(self, member: str) -> None:
        """Count a wrong code."""
        with self._lock:
            self._wrong.setdefault(member, []).append(self.clock())
