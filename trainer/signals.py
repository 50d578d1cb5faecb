"""SIGTERM as a wish: the first is granted at the end of a step, the second at once. SIGHUP is one too, however often it
comes: a terminal that is closed may send it several times."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from trainer.errors import Exit

_WISHES = (signal.SIGTERM, signal.SIGHUP)


class StopWish:
    """While it is entered, SIGTERM and SIGHUP set `wanted`. Before and after, they end the process as usual.

    In a thread that is not the main one, where signals cannot be had, it stays unset.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._told = False  # by SIGTERM
        self._status = Exit.TERMINATED

    def granted(self, status: Exit) -> None:
        """What a further SIGTERM ends the process with, now that all is saved."""
        self._status = status

    def __enter__(self) -> StopWish:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            # nohup ignores SIGHUP, and that stays.
            wishes = [one for one in _WISHES if signal.getsignal(one) is not signal.SIG_IGN]
            self._before = {one: signal.signal(one, self._received) for one in wishes}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            for one, before in self._before.items():
                signal.signal(one, before)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            if self._told:
                os._exit(self._status)
            self._told = True
        self.wanted = True
