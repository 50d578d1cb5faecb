"""SIGTERM and SIGHUP end a changing command as Ctrl-C does, so that it says what remains and cancels its request."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO


@contextmanager
def interrupt_on_end_signals() -> Generator[list[int]]:
    """Raise KeyboardInterrupt at SIGTERM or SIGHUP, and yield the list of those that came.

    An ignored SIGHUP is nohup's, and stays ignored.
    """
    received: list[int] = []
    terminals = [stream for stream in (sys.stdout, sys.stderr) if _is_terminal(stream)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for stream in terminals:
            if not _is_terminal(stream):  # it was closed: writing there would be an error in the middle of the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise KeyboardInterrupt

    former: dict[signal.Signals, object] = {}
    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(one) is not signal.SIG_IGN:
                former[one] = signal.signal(one, interrupt)
    try:
        yield received
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)  # type: ignore[arg-type]  # what signal.signal returned


def _is_terminal(stream: TextIO) -> bool:
    with suppress(OSError, ValueError):  # no file at all, or closed
        return os.isatty(stream.fileno())
    return False
