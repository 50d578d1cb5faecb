"""Stack dumps on request: after SIGQUIT this process writes the stacks of all its threads.

A dump that faulthandler writes inside a signal handler reads frames that other threads may be changing, and has ended
a healthy run by a segmentation fault (CPython documents that its C-level dump ignores the interpreter's lock). So a
thread writes it, with the lock held. When native code never gives the lock back, no frame changes, and a second
signal dumps from its handler. A file announces both, because the same signals end a process that has no handler.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO


def enable_stack_dumps(environ: Mapping[str, str], rank: int) -> None:
    """Write stacks on SIGQUIT to stacks-RANK.txt in $ORCH_JOB_DIR, and announce that in stacks-RANK.pid.

    That file holds the process id and the number of the signal that dumps without the interpreter's lock. Without the
    folder nothing changes, and the quit key ends the program as usual. The stacks of a fatal error go to the log.
    """
    faulthandler.enable()
    folder = environ.get("ORCH_JOB_DIR", "")
    if not folder or not hasattr(signal, "SIGRTMIN"):
        return
    without_lock = signal.SIGRTMIN + 5
    try:
        # Stays open: faulthandler writes to it at each signal.
        dumps = (Path(folder) / f"stacks-{rank}.txt").open("a")
        faulthandler.register(without_lock, file=dumps, all_threads=True)
        _dump_in_a_thread(signal.SIGQUIT, dumps)
        marker = Path(folder) / f".stacks-{rank}.pid"
        marker.write_text(f"{os.getpid()} {without_lock:d}\n")
        marker.replace(marker.with_name(f"stacks-{rank}.pid"))
    except OSError as error:
        sys.stderr.write(f"note: rank {rank} offers no stack dumps: {error}\n")


def _dump_in_a_thread(number: int, dumps: TextIO) -> None:
    """Let a thread write the dump when the signal arrives, whatever the main thread does."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def dump_on_signal() -> None:
        while received := os.read(read, 1):
            if received[0] == number:  # the numbers of all signals with a handler arrive here
                faulthandler.dump_traceback(dumps, all_threads=True)

    threading.Thread(target=dump_on_signal, name="stack-dumps", daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(number, lambda _number, _frame: None)
    signal.siginterrupt(number, False)  # a system call in progress continues
