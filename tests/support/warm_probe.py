"""State of a process that a forked one must share with a new interpreter, and the ways in which it can end."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import stat
import sys
import threading
import time
from pathlib import Path


def main() -> int:
    """Print the state, or end as the first argument says."""
    how, *rest = sys.argv[1:] or ["state"]
    if how == "state":
        print(json.dumps(read_state()))
    elif how == "exit":
        return int(rest[0])
    elif how == "raise":
        raise LookupError(rest[0])
    elif how == "sleep":
        print("ready", flush=True)
        time.sleep(float(rest[0]))
    elif how == "signal":
        signal.raise_signal(int(rest[0]))
    elif how == "copy":
        sys.stdout.write(sys.stdin.read())
        print("é to stderr", file=sys.stderr)
    return 0


def read_state() -> dict[str, object]:
    """Return what a command could see of its process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    mask = os.umask(0)
    os.umask(mask)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "environment": dict(sorted(os.environ.items())),
        "folder": str(Path.cwd()),
        "umask": mask,
        "signals": {name: lines[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")},
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "threads": [lines["Threads"].strip(), threading.active_count()],
        "fds": sorted(fd for fd in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()) if _is_open(fd)),
        "group": [os.getpgrp(), os.getsid(0)],
        "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        "arguments": sys.argv[1:],
        "streams": [(s.encoding, s.errors, s.line_buffering, s.isatty(), s.fileno()) for s in streams],
        "flags": str(sys.flags),
        "gc": [gc.isenabled(), gc.get_threshold()],
        "first on the path": sys.path[0],
    }


def _is_open(fd: int) -> bool:
    try:
        return not stat.S_ISDIR(os.fstat(fd).st_mode)  # the listing has its own
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
