"""Hosts that end with their owner: a process that holds a folder's pipe open for as long as its hosts may live.

The kernel closes the pipe however the process ends, and each guard sees it at once. A folder without a pipe has no
owner; its hosts live until they are ended. `python -I -S` reads this: standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "owner"  # beside the folder `local`


@contextmanager
def own_hosts(state: Path) -> Generator[None]:
    """Own the hosts that any process starts in this folder until the block ends."""
    pipe = state / _NAME
    with suppress(FileExistsError):
        os.mkfifo(pipe, 0o600)
    held = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)  # for writing alone it would wait for a reader
    try:
        yield
    finally:
        os.close(held)


def end_with_owner(state: Path) -> None:
    """End this process at once when the owner of the folder's hosts is gone."""
    watched = watch_owner(state)
    if watched is not None:
        threading.Thread(target=_end_when_readable, args=(watched,), name="owner of hosts", daemon=True).start()


def watch_owner(state: Path) -> int | None:
    """Return a descriptor that is readable once the owner is gone, or None for hosts without an owner."""
    try:
        watched = os.open(state / _NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        os.read(watched, 1)
    except BlockingIOError:
        return watched  # it is held open
    os.close(watched)
    return os.open(os.devnull, os.O_RDONLY)  # gone before we looked; this is always readable


def _end_when_readable(watched: int) -> None:
    select.select([watched], [], [])
    os._exit(128 + signal.SIGKILL)
