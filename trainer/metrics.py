"""The numbers of a run as JSON lines: in a local file at once, in the bucket in parts.

One line for each logged step, written by rank 0. `loss_hex` is the same number as `loss`, for comparing bits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from trainer.checkpoint.store import Store
from trainer.errors import StorageError

_FLUSH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One line. step: done so far. tokens: used so far, over all ranks.

    tokens_per_s, step_s, data_s: means since the last line, the latter two in seconds a step.
    checkpoint_stall_s: seconds in which training stood still for checkpoints since the last line.
    mfu: share of the published peak, by `mfu_formula`; None when the peak is not known. time: UTC.
    """

    step: int
    loss: float
    loss_hex: str
    lr: float
    grad_norm: float
    tokens: int
    tokens_per_s: float
    step_s: float
    data_s: float
    checkpoint_stall_s: float
    mfu: float | None
    mfu_formula: str
    time: str
    attempt: int
    rank: int
    run_id: str

    def as_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def for_people(self, steps: int) -> str:
        return (
            f"step {self.step}/{steps}  loss {self.loss:.4f}  lr {self.lr:.2e}  "
            f"{self.tokens_per_s:,.0f} tok/s  grad {self.grad_norm:.2f}"
        )


class MetricsLog:
    """file: appended to; None for none. store: the run's folder in the bucket; None for none.

    The bucket gets attempt-0001/part-00001.jsonl and so on: every 30 s, at `flush`, and at the end. A part that
    cannot be written is tried again with the next; at the end that raises StorageError.
    """

    def __init__(self, file: Path | None, store: Store | None, attempt: int, report: Callable[[str], None]) -> None:
        self._file = file
        self._store = store
        self._folder = f"metrics/attempt-{attempt:04d}"
        self._report = report
        self._lines: list[str] = []
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._part = 1
        self._thread = threading.Thread(target=self._upload_in_turn, name="metrics", daemon=True)

    def __enter__(self) -> MetricsLog:
        if self._store is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._wake.set()
        if self._store is None:
            return
        self._thread.join()
        try:
            self._upload()
        except StorageError:
            if error is None:  # else the first error is the one to show
                raise

    def write(self, record: StepRecord) -> None:
        """Raises StorageError when the local file cannot be written."""
        line = record.as_line()
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as out:
                    out.write(line)
            except OSError as error:
                raise StorageError(f"metrics.file={self._file}: cannot be written: {error.strerror}") from error
        if self._store is not None:
            with self._guard:
                self._lines.append(line)

    def flush(self) -> None:
        """Let the thread write what there is."""
        self._wake.set()

    def _upload_in_turn(self) -> None:
        while not self._ended:
            self._wake.wait(_FLUSH_SECONDS)
            self._wake.clear()
            try:
                self._upload()
            except StorageError as error:
                self._report(f"note: metrics are kept back: {error}")

    def _upload(self) -> None:
        with self._guard:
            lines = list(self._lines)
        if self._store is None or not lines:
            return
        data = "".join(lines).encode()
        # Somebody may have run the same attempt before: never write over its parts.
        while not self._store.create(f"{self._folder}/part-{self._part:05d}.jsonl", data):
            self._part += 1
        self._part += 1
        with self._guard:
            del self._lines[: len(lines)]


class Meter:
    """Where the time goes between two lines."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0
        self._data = 0.0

    def waited_for_data(self, seconds: float) -> None:
        self._data += seconds

    def step(self) -> None:
        self._steps += 1

    def take(self) -> tuple[float, float]:
        """Seconds a step, and of these for data; then start again."""
        now = time.perf_counter()
        steps = max(1, self._steps)
        result = (now - self._start) / steps, self._data / steps
        self._start, self._steps, self._data = now, 0, 0.0
        return result
