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
    """Writes {"step", "rank", "time"} to $ORCH_HEARTBEAT_FILE, at most once a second, by atomic rename.

    Further ranks of the same host add `.1`, `.2` ... to the name.
    """

    def __init__(self, path: Path | None, world: World, console: Console) -> None:
        self._path = (
            path if path is None or world.local_rank == 0 else path.with_name(f"{path.name}.{world.local_rank}")
        )
        self._rank = world.rank
        self._console = console
        self._next = 0.0

    def beat(self, step: int, *, final: bool = False) -> None:
        if self._path is None or (time.monotonic() < self._next and not final):
            return
        self._next = time.monotonic() + _SECONDS
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            temporary.write_text(json.dumps({"step": step, "rank": self._rank, "time": timestamp()}) + "\n")
            temporary.replace(self._path)
        except OSError as error:
            # The run is worth more than its pulse: say it once and go on.
            self._console.every(f"note: no heartbeat from rank {self._rank}: {error}")
            self._path = None
