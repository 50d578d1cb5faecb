"""The folder of this machine in which data that was converted or read once is remembered."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.errors import DataError


def find_cache_folder() -> Path:
    """Return the folder: $ORCH_DATA_CACHE, else a part of the user's cache. It may not exist.

    Raises:
        DataError: ORCH_DATA_CACHE names a bucket.
    """
    place = os.environ.get("ORCH_DATA_CACHE", "")
    if "://" in place:
        raise DataError(
            f"ORCH_DATA_CACHE={place}: must be a folder on this machine; `python -m trainer prepare` writes to buckets"
        )
    return Path(place) if place else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "orch-data"


@contextmanager
def hold_lock(path: Path) -> Generator[None, None, None]:
    """Hold a lock among the processes of this machine; its folder must exist.

    Raises:
        OSError: The lock's file cannot be made.
    """
    with path.open("ab") as lock:
        with suppress(OSError):  # a network's file system may have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, also when the process is killed
        yield


def replace_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        OSError: The disk refuses it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        staged.write_bytes(data)
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)
        raise
