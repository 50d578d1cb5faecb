"""The numbers of a program's steps, written to the bucket as the trainer's are (trainer/metrics/files.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoint.epoch import utc_timestamp
from ..checkpoint.store import Store
from ..environment import Run
from ..errors import StorageError

_PART_SECONDS = 30.0
_MOST_LINES = 100_000  # that wait for a bucket that fails; the oldest are dropped then


class MetricsParts:
    """Writes metrics/attempt-0001/part-00001.jsonl and so on in the run's folder, in a thread."""

    def __init__(self, place: Store, run: Run, report: Callable[[str], None]) -> None:
        """Take the run's folder."""
        self._place, self._run, self._report = place, run, report
        self._lines: list[str] = []
        self._part = 1
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._write_always, name="orch-run-metrics", daemon=True)
        self._thread.start()

    def write(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Queue the numbers of a step; never waits and never fails."""
        own: dict[str, Any] = {"step": step, "time": utc_timestamp(), "attempt": self._run.attempt}
        line = json.dumps({**numbers, **own, "run_id": self._run.run_id})
        with self._guard:
            self._lines.append(line)
            del self._lines[:-_MOST_LINES]

    def close(self) -> None:
        """Write what is left."""
        self._ended = True
        self._wake.set()
        self._thread.join()

    def _write_always(self) -> None:
        while not self._ended:
            self._wake.wait(_PART_SECONDS)
            self._deliver()
        self._deliver()  # what came while the last part was being written

    def _deliver(self) -> None:
        with self._guard:
            lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            content = "".join(f"{line}\n" for line in lines).encode()
            folder = f"metrics/attempt-{self._run.attempt:04d}"
            while not self._place.create(f"{folder}/part-{self._part:05d}.jsonl", content):
                self._part += 1
            self._part += 1
        except StorageError as error:
            self._report(f"note: metrics are held back: {error}")
            with self._guard:
                self._lines = [*lines, *self._lines]
