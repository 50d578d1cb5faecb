"""Advisory locks of files, which the system releases when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StorageError
from .regular_files import open_regular_at

_QUIET_SECONDS = 10.0  # of a wait that is not reported


@contextmanager
def hold_lock(
    path: Path, *, seconds: float, report: Callable[[str], None] | None = None, folder: int | None = None
) -> Generator[None, None, None]:
    """Hold the lock of a file, which is created.

    Args:
        path: The file; it holds the id of the process that took the lock last.
        seconds: For how long to wait for the process that holds it.
        report: Prints a line, once the wait is longer than usual.
        folder: Descriptor of its folder, where that is open.

    Raises:
        StorageError: Another process held it for too long.
        OSError: The disk fails, or something other than a file has its name.
    """
    name = str(path) if folder is None else path.name
    descriptor = open_regular_at(folder, name, os.O_RDWR | os.O_CREAT | os.O_APPEND, shown=str(path))
    try:
        _wait(descriptor, path, seconds, report)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, seconds: float, report: Callable[[str], None] | None) -> None:
    began, reported = time.monotonic(), report is None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited > seconds:
                raise StorageError(
                    f"{path}: held for {seconds:.0f} s by {_name_holder(descriptor)}: "
                    "if it is stopped, kill or continue it"
                ) from None
            if waited > _QUIET_SECONDS and report is not None and not reported:
                report(
                    f"waiting for {_name_holder(descriptor)}, which holds {path}, for at most {seconds / 60:.0f} min"
                )
                reported = True
            time.sleep(0.005 if waited < 1 else 0.1)
        else:
            return


def _name_holder(descriptor: int) -> str:
    number = os.pread(descriptor, 32, 0).strip().decode(errors="replace")
    return f"process {number}" if number.isdecimal() else "another process"
