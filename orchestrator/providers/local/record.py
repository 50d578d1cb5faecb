"""What is written down of one slice, and who may change it: `slice.json` and its lock.

The record is there before the first process of the slice and goes after the last one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import ConflictError
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.providers.local.addresses import Place
from orchestrator.providers.local.layout import SlicePaths

LOCK_LIMIT = 60.0  # seconds; nobody holds it longer, whatever the number of hosts


class Phase(StrEnum):
    """What was last asked of the slice. Whether its hosts live is a matter of their processes."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    ENDING = "ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRecord:
    """id: made with the folder, part of the mark of its processes. created: epoch seconds. places: by rank.

    preempted: ranks that were taken away to play a preemption.
    """

    name: str
    cluster: str
    token: str
    id: str
    created: float
    phase: Phase
    labels: dict[str, str]
    user: str
    user_public: str
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    places: tuple[Place, ...]
    preempted: tuple[int, ...] = ()

    @property
    def ranks(self) -> range:
        return range(len(self.places))

    def alias(self, rank: int) -> str:
        """The name the host's key is pinned under: never used again by another slice."""
        return f"{self.name}-{self.id[:8]}-{rank}"


def read_record(paths: SlicePaths) -> SliceRecord | None:
    """None when there is none. Raises OSError or ValueError when it cannot be read."""
    try:
        fields = cast(dict[str, Any], json.loads(paths.record.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    try:
        typed: dict[str, Any] = {
            **fields,
            "phase": Phase(fields["phase"]),
            "host_public": tuple(fields["host_public"]),
            "places": tuple(Place(**place) for place in fields["places"]),
            "preempted": tuple(fields["preempted"]),
        }
        return SliceRecord(**typed)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{paths.record} is not a record of a slice: {error}") from error


def write_record(paths: SlicePaths, record: SliceRecord) -> None:
    write_whole(paths.record, json.dumps(asdict(record), indent=1) + "\n")


@contextmanager
def claimed(paths: SlicePaths) -> Generator[int]:
    """Make the folder if need be and hold its lock. See `locked`."""
    lock: int | None = None
    while lock is None:
        make_private_folder(paths.path)
        lock = _acquire(paths)  # None: removed between the two steps
    try:
        yield lock
    finally:
        os.close(lock)


@contextmanager
def locked(paths: SlicePaths) -> Generator[int | None]:
    """Hold the slice's lock; None when there is no such slice. Raises ConflictError after LOCK_LIMIT.

    A child that inherits the descriptor holds the lock as well, until it closes its copy or ends.
    """
    lock = _acquire(paths)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)  # not LOCK_UN: that would take it from the child too


def is_busy(paths: SlicePaths) -> bool:
    """Is somebody at work on the slice now?"""
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_folder(paths: SlicePaths) -> None:
    """Homes first, the record when they are gone, the lock last. Call with the lock held."""
    remove_tree(paths.hosts)
    paths.session.unlink(missing_ok=True)
    paths.record.unlink(missing_ok=True)
    remove_tree(paths.path)


def remove_tree(folder: Path) -> None:
    """Remove it all, also folders that a program made unwritable."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        for path, _, _ in os.walk(folder):
            inner = Path(path)
            inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(folder)


def _acquire(paths: SlicePaths) -> int | None:
    deadline = time.monotonic() + LOCK_LIMIT
    while True:
        try:
            descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None
        try:
            _wait_for(descriptor, paths, deadline)
            if _is_still(descriptor, paths.lock):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _wait_for(descriptor: int, paths: SlicePaths, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"local slice '{paths.path.name}' is being changed",
                    f"another orch has been at work on it for over {LOCK_LIMIT:.0f} s",
                    "wait for it, or end it, then run the same command again",
                ) from None
            time.sleep(0.01)
        else:
            return


def _is_still(descriptor: int, path: Path) -> bool:
    """Is the locked file the one that has this name? The folder may have been removed meanwhile."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
