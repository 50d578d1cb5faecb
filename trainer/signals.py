"""SIGTERM as a wish: the first is granted at the end of a step, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from trainer.errors import Exit


class StopWish:
    """While it is entered, SIGTERM sets `wanted`. Before and after, it ends the process as usual.

    In a thread that is not the main one, where signals cannot be had, it stays unset.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._status = Exit.TERMINATED

    def granted(self, status: Exit) -> None:
        """What a further SIGTERM ends the process with, now that all is saved."""
        self._status = status

    def __enter__(self) -> StopWish:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGTERM, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            signal.signal(signal.SIGTERM, self._before)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            os._exit(self._status)
        self.wanted = True
