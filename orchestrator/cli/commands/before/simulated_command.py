"""Run a command in a simulated cloud, and pass signals on to it, so that the cloud always ends in good order."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.errors import UserError

_GRACE = 5.0  # seconds that a command has to end after SIGTERM or SIGHUP
_POLL = 0.2

Signals = list[signal.Signals]


@contextmanager
def noticed_signals() -> Generator[Signals]:
    """Collect SIGINT, SIGTERM and SIGHUP instead of being ended by them.

    A script's background job starts with SIGINT ignored and must still be ended by it. An ignored SIGHUP is
    nohup's, and stays ignored.
    """
    received: Signals = []
    former: dict[signal.Signals, object] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                former[number] = signal.signal(number, lambda got, _frame: received.append(signal.Signals(got)))
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned


def run_command(command: list[str], env: dict[str, str], signals: Signals) -> int:
    """Return the exit status of the command.

    Raises:
        UserError: It cannot be started.
    """
    if signals:
        return 128 + signals[0]
    try:
        process = subprocess.Popen(command, env=env)
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run", str(error), "name a program behind --") from error
    deadline = float("inf")
    while True:
        try:
            status = process.wait(_POLL)
        except subprocess.TimeoutExpired:
            while signals:
                number = signals.pop(0)
                if number is not signal.SIGINT:
                    deadline = min(deadline, time.monotonic() + _GRACE)
                elif _in_foreground():
                    continue  # the terminal interrupts the command, too
                process.send_signal(number)
            if time.monotonic() > deadline:
                process.kill()
        else:
            return status if status >= 0 else 128 - status


def _in_foreground() -> bool:
    """Whether Ctrl-C on the terminal reaches this process and its command alike."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
