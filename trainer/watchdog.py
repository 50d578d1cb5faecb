"""Ends a run that hangs: it writes the stacks of all threads and fails, so that the launcher can act.

There are two timers. The first is a thread that explains the failure; the second is faulthandler's, in C, half a minute
later, for a main thread that holds the interpreter's lock.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from trainer.errors import Exit

START_SECONDS = 3600.0
"""More than the limit, until the first step is done: a large model is compiled and its checkpoint fetched."""
SECOND_TIMER = 30.0
LEAVING_SECONDS = 600.0
"""For the last notes and the libraries' own ends, when all is done."""
_REARM = 1.0


class Watchdog:
    """Ends the process when the main loop makes no progress."""

    def __init__(self, limit: float, stacks: Path | None = None, *, second_timer: float = SECOND_TIMER) -> None:
        """Set the limit.

        Args:
            limit: Seconds without a `beat`; 0: it does nothing.
            stacks: A file that also gets the stacks.
            second_timer: Seconds from the first timer to the second.
        """
        self._limit = limit
        self._second_timer = second_timer
        self._stacks = stacks
        self._deadline = 0.0
        self._armed = 0.0
        self._armed_until = 0.0
        self._activity = "starting"
        self._status = Exit.FAILURE
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self._limit:
            self.extend(START_SECONDS, "starting")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._limit:
            faulthandler.cancel_dump_traceback_later()

    def beat(self, step: int) -> None:
        """Record that a step is done; cheap."""
        if self._limit:
            self._activity = f"step {step + 1}"
            self._set(self._limit)

    def extend(self, seconds: float, doing: str) -> None:
        """Allow that many seconds beyond the limit for what begins now; the next beat ends it."""
        if self._limit:
            self._activity = doing
            self._set(self._limit + seconds)

    def expect_exit(self, status: Exit, seconds: float = LEAVING_SECONDS) -> None:
        """Allow that many seconds for leaving after the run is done; a hang from here on ends with this status."""
        if self._limit:
            self._activity, self._status = "leaving", status
            self._set(seconds)

    def _set(self, seconds: float) -> None:
        now = time.monotonic()
        self._deadline = now + seconds
        sooner = self._deadline < self._armed_until - _REARM
        later = now >= self._armed + _REARM  # not at each fast step: each arming starts a thread
        if sooner or later or self._deadline > self._armed_until + _REARM:
            self._armed, self._armed_until = now, self._deadline
            faulthandler.dump_traceback_later(seconds + self._second_timer, exit=True)

    def _watch(self) -> None:
        while not self._ended.wait(max(0.05, min(1.0, self._deadline - time.monotonic()))):
            if time.monotonic() >= self._deadline:
                self._dump_and_exit()

    def _dump_and_exit(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if self._stacks is not None:
            try:
                with self._stacks.open("a") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
            except OSError as error:
                sys.stderr.write(f"note: the stacks cannot be written to {self._stacks}: {error.strerror}\n")
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        sys.stderr.write(self._message())
        sys.stderr.flush()
        os._exit(self._status)

    def _message(self) -> str:
        if self._status != Exit.FAILURE:
            return "note: the run is over, but this rank cannot leave; the stacks of all threads are above\n"
        return (
            f"error[hang]: no progress in {self._limit:g} s beyond what is allowed for ({self._activity}); the stacks "
            "of all threads are above; dist.watchdog sets the limit\n"
        )
