"""An offer to whoever watches: send this process SIGQUIT, and it writes where each of its threads stands.

The dump is made by faulthandler in C, so it works while the main thread waits in a collective, or holds the lock of
the interpreter. It is offered by a file, because the same signal ends a process that has no handler for it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path


def offer_stacks(environ: Mapping[str, str], rank: int) -> None:
    """In a job's folder, $ORCH_JOB_DIR: stacks-RANK.txt gets the dumps, stacks-RANK.pid says that one may ask.

    Without that folder nothing changes, and Ctrl-\\ ends the program as ever. A fatal error's stacks go to the log.
    """
    faulthandler.enable()
    folder = environ.get("ORCH_JOB_DIR", "")
    number = getattr(signal, "SIGQUIT", None)
    if not folder or number is None:
        return
    try:
        # Left open: faulthandler writes to it whenever it is asked.
        dumps = (Path(folder) / f"stacks-{rank}.txt").open("a")
        faulthandler.register(number, file=dumps, all_threads=True)
        marker = Path(folder) / f".stacks-{rank}.pid"
        marker.write_text(f"{os.getpid()}\n")
        marker.replace(marker.with_name(f"stacks-{rank}.pid"))
    except OSError as error:
        sys.stderr.write(f"note: rank {rank} offers no stack dumps: {error}\n")
