"""A small file that records how far this rank is, so that an observer can detect a hang."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from .checkpoint.epoch import utc_timestamp
from .environment import World

NO_STORAGE = "no-storage"
"""The phase of a program that ends as it cannot use its bucket, for a reason that does not pass: orch does not restart
it, whatever the exit status of what started it (torchrun's is 1)."""
_SECONDS_BETWEEN_WRITES = 1.0


class Heartbeat:
    """Writes {"step", "rank", "time", "phase"} to $ORCH_HEARTBEAT_FILE, at most once a second, by atomic rename.

    Further ranks of the same host add `.1`, `.2` ... to the name. No background thread writes it: a main loop that
    hangs must look like one. The phase is one lower-case word; a new phase is written immediately.
    """

    def __init__(self, path: Path | None, world: World, report: Callable[[str], None]) -> None:
        self._path = (
            path if path is None or world.local_rank == 0 else path.with_name(f"{path.name}.{world.local_rank}")
        )
        self._rank = world.rank
        self._report = report
        self._next = 0.0
        self._phase: str = ""

    def beat(self, step: int | None, phase: str = "training", *, final: bool = False) -> None:
        """Write the heartbeat unless the last one is recent.

        Args:
            step: Steps that are done; None while unknown.
            phase: What begins now or continues.
            final: Write even if the last one is recent.
        """
        if self._path is None or (time.monotonic() < self._next and not final and phase == self._phase):
            return
        self._phase = phase
        self._next = time.monotonic() + _SECONDS_BETWEEN_WRITES
        beat = {"step": step, "rank": self._rank, "time": utc_timestamp(), "phase": phase}
        try:
            _write(self._path, (json.dumps(beat) + "\n").encode())
        except OSError as error:
            # A missing heartbeat must not end the run: report it once.
            self._report(f"note: no heartbeat from rank {self._rank}: {error}")
            self._path = None


def _write(path: Path, content: bytes) -> None:
    """Replace a file; on a full disk, write over the earlier one, which needs no room."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
