"""SIGTERM and SIGHUP as stop requests.

The first SIGTERM stops the run at the end of a step, the second immediately. SIGHUP is a stop request too, however
often it comes: a closing terminal may send it several times.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from .errors import Exit

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """While it is entered, SIGTERM and SIGHUP set `requested`; before and after, they end the process as usual.

    In a thread that is not the main one, which cannot handle signals, it stays unset.
    """

    def __init__(self) -> None:
        self.requested = False
        self._terminated_before = False  # by SIGTERM
        self._status = Exit.TERMINATED

    def set_exit_status(self, status: Exit) -> None:
        """Set the status with which a further SIGTERM ends the process, after everything is saved."""
        self._status = status

    def __enter__(self) -> StopRequest:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            # Under nohup, SIGHUP stays ignored.
            handled = [one for one in _STOP_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
            self._before = {one: signal.signal(one, self._received) for one in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            for one, before in self._before.items():
                signal.signal(one, before)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            if self._terminated_before:
                os._exit(self._status)
            self._terminated_before = True
        self.requested = True
