"""A small file that says how far this rank is, for whoever watches whether it still moves."""

from __future__ import annotations

import json
import time
from pathlib import Path

from trainer.checkpoint.layout import timestamp
from trainer.console import Console
from trainer.environment import World

_SECONDS = 1.0


class Heartbeat:
    """Writes {"step", "rank", "time", "phase"} to $ORCH_HEARTBEAT_FILE, at most once a second, by atomic rename.

    Further ranks of the same host add `.1`, `.2` ... to the name. No thread beats: a main loop that stands still must
    look like one. phase: one word in small letters; a new one is written at once.
    """

    def __init__(self, path: Path | None, world: World, console: Console) -> None:
        self._path = (
            path if path is None or world.local_rank == 0 else path.with_name(f"{path.name}.{world.local_rank}")
        )
        self._rank = world.rank
        self._console = console
        self._next = 0.0
        self._phase = ""

    def beat(self, step: int | None, phase: str = "training", *, final: bool = False) -> None:
        """step: how many are done, None while that is not known. phase: what begins now, or goes on."""
        if self._path is None or (time.monotonic() < self._next and not final and phase == self._phase):
            return
        self._phase = phase
        self._next = time.monotonic() + _SECONDS
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            beat = {"step": step, "rank": self._rank, "time": timestamp(), "phase": phase}
            temporary.write_text(json.dumps(beat) + "\n")
            temporary.replace(self._path)
        except OSError as error:
            # The run is worth more than its pulse: say it once and go on.
            self._console.every(f"note: no heartbeat from rank {self._rank}: {error}")
            self._path = None
