"""Small JSON files that several processes share: a lock, a whole read, a whole write. Modes 600 and 700.

A write goes to a second file and takes the first one's name, so a process killed at any instant leaves the old text or
the new one. Nothing is flushed to the disk: what is kept is a simulation, and it need not survive a power cut.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from orchestrator.private_files import write_whole


@contextmanager
def exclusive(lock: Path) -> Generator[None]:
    """Hold the lock, waiting for it. The kernel takes it back from a process that dies. Raises OSError."""
    lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a file; None when there is no file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not JSON.
    """
    try:
        return cast(dict[str, Any], json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the file as a whole. Raises OSError."""
    text = json.dumps(value, separators=(",", ":"))  # not json.dump: that is ten times slower
    write_whole(path, text, flush=False)
