"""Local files that users name: only regular ones are opened, and a change while one is read is noticed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, NamedTuple

from trainer.data.files.forms import HEAD_BYTES
from trainer.errors import DataError

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
_SAFELY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileState(NamedTuple):
    """The state of a file, which changes with its content; a bucket that is mounted has no lasting inodes."""

    size: int
    modified: int


def open_regular_file(path: Path) -> IO[bytes]:
    """Open a file to be read, also through links, with a buffer of HEAD_BYTES.

    Raises:
        DataError: It cannot be read, or is a pipe, a socket or a device, for which nothing waits.
    """
    try:
        check_regular(path, path.stat().st_mode)  # to open a device may change it
        file = os.open(path, _SAFELY)
    except OSError as error:
        raise _refuse(path, error) from error
    opened = os.fdopen(file, "rb", HEAD_BYTES)
    try:
        check_regular(path, os.fstat(file).st_mode)
    except DataError:
        opened.close()
        raise
    return opened


def read_state(path: Path) -> FileState:
    """Return the state of a file.

    Raises:
        DataError: It cannot be read, or is no regular file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise _refuse(path, error) from error
    check_regular(path, found.st_mode)
    return FileState(found.st_size, found.st_mtime_ns)


def check_unchanged(path: Path, before: FileState) -> None:
    """Compare the state of a file that has been read with the one from before.

    Raises:
        DataError: It has changed.
    """
    if read_state(path) != before:
        raise DataError(f"{path} changed while it was read: run the command again when no program writes to it")


def check_regular(path: Path, mode: int) -> None:
    """Check what stands at a path by its mode.

    Raises:
        DataError: It is no regular file.
    """
    if not stat.S_ISREG(mode):
        kind = next((kind for matches, kind in _KINDS if matches(mode)), "a device")
        advice = "" if stat.S_ISDIR(mode) else ": write what it gives to a file, and name that"
        raise DataError(f"{path} is {kind}, not a file{advice}")


def _refuse(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror}")
