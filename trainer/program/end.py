"""The end of an own program that cannot use its bucket: with status 16, and without a restart by orch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from ..environment import Run, World
from ..errors import LastingStorageError
from ..heartbeat import NO_STORAGE, Heartbeat


def end_without_bucket(run: Run, world: World, report: Callable[[str], None]) -> None:
    """Let a LastingStorageError that the main thread does not catch end the process in one line, with its status.

    The heartbeat reports it too, since torchrun and other launchers return another status. Every other error
    goes to the hook that was there before.
    """
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, LastingStorageError):
            before(kind, error, trace)
            return
        report(f"error[{error.code}]: {error}")
        Heartbeat(run.heartbeat_file, world, report).beat(None, NO_STORAGE, final=True)
        # The interpreter exits with the status of a SystemExit from the hook, by its usual road: functions of atexit
        # run, and threads are joined (CPython, Python/pythonrun.c, _PyErr_PrintEx, read 2026-11-29).
        raise SystemExit(int(error.exit_status))

    sys.excepthook = end
