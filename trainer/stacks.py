"""Stack dumps on request: after SIGQUIT this process writes the stacks of all its threads.

faulthandler writes the dump in C, so it works while the main thread waits in a collective or holds the interpreter's
lock. A file announces the handler, because the same signal ends a process that has none.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path


def enable_stack_dumps(environ: Mapping[str, str], rank: int) -> None:
    """Write stacks on SIGQUIT to stacks-RANK.txt in $ORCH_JOB_DIR, and announce that in stacks-RANK.pid.

    Without that folder nothing changes, and the quit key ends the program as usual. The stacks of a fatal error go to
    the log.
    """
    faulthandler.enable()
    folder = environ.get("ORCH_JOB_DIR", "")
    number = getattr(signal, "SIGQUIT", None)
    if not folder or number is None:
        return
    try:
        # Stays open: faulthandler writes to it at each signal.
        dumps = (Path(folder) / f"stacks-{rank}.txt").open("a")
        faulthandler.register(number, file=dumps, all_threads=True)
        marker = Path(folder) / f".stacks-{rank}.pid"
        marker.write_text(f"{os.getpid()}\n")
        marker.replace(marker.with_name(f"stacks-{rank}.pid"))
    except OSError as error:
        sys.stderr.write(f"note: rank {rank} offers no stack dumps: {error}\n")
