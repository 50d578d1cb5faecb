"""Ends a run that stands still: the stacks of all threads, then a failure, so that whoever launched it can act.

Two timers. The first is a thread that explains itself; the second is faulthandler's, in C, half a minute later, for a
main thread that holds the interpreter's lock.
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
    """limit: seconds without a `beat`; 0: it does nothing. stacks: a file that gets the stacks as well. second_timer:
    seconds after the first one."""

    def __init__(self, limit: float, stacks: Path | None = None, *, second_timer: float = SECOND_TIMER) -> None:
        self._limit = limit
        self._second_timer = second_timer
        self._stacks = stacks
        self._deadline = 0.0
        self._armed = 0.0
        self._armed_until = 0.0
        self._doing = "starting"
        self._status = Exit.FAILURE
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self._limit:
            self.allow(START_SECONDS, "starting")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._limit:
            faulthandler.cancel_dump_traceback_later()

    def beat(self, step: int) -> None:
        """A step is done. Cheap."""
        if self._limit:
            self._doing = f"step {step + 1}"
            self._set(self._limit)

    def allow(self, seconds: float, doing: str) -> None:
        """What begins now may take that much longer than the limit; the next beat ends it."""
        if self._limit:
            self._doing = doing
            self._set(self._limit + seconds)

    def leave(self, status: Exit, seconds: float = LEAVING_SECONDS) -> None:
        """The run is over: leaving may take that long; who stands still for longer ends with this status."""
        if self._limit:
            self._doing, self._status = "leaving", status
            self._set(seconds)

    def _set(self, seconds: float) -> None:
        now = time.monotonic()
        self._deadline = now + seconds
        sooner = self._deadline < self._armed_until - _REARM
        later = now >= self._armed + _REARM  # not at each quick step: each arming starts a thread
        if sooner or later or self._deadline > self._armed_until + _REARM:
            self._armed, self._armed_until = now, self._deadline
            faulthandler.dump_traceback_later(seconds + self._second_timer, exit=True)

    def _watch(self) -> None:
        while not self._ended.wait(max(0.05, min(1.0, self._deadline - time.monotonic()))):
            if time.monotonic() >= self._deadline:
                self._bark()

    def _bark(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if self._stacks is not None:
            try:
                with self._stacks.open("a") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
            except OSError as error:
                sys.stderr.write(f"note: the stacks cannot be written to {self._stacks}: {error.strerror}\n")
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        sys.stderr.write(self._words())
        sys.stderr.flush()
        os._exit(self._status)

    def _words(self) -> str:
        if self._status != Exit.FAILURE:
            return "note: the run is over, but this rank cannot leave; the stacks of all threads stand above\n"
        return (
            f"error[hang]: no progress in {self._limit:g} s beyond what is allowed for ({self._doing}); the stacks of "
            "all threads stand above; dist.watchdog sets the limit\n"
        )
