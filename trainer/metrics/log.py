"""The way of a record to where it is kept: each sink has a thread of its own, so that none holds up training.

The local file and the bucket keep every record: a sink that cannot write says so, keeps what it has, and tries again;
if it has to give up at the end, that is an error. The other sinks are a service: what one cannot take is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from trainer.checkpoint.layout import run_folder
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.environment import Run, World
from trainer.errors import StorageError

if TYPE_CHECKING:
    from trainer.metrics.record import StepRecord

_PATIENCE = 15.0  # seconds that the end of a run waits for a sink that need not keep everything


class Sink(Protocol):
    """Somewhere that records go to. Used by one thread only."""

    @property
    def name(self) -> str:
        """For notes, such as `metrics.file=metrics.jsonl`."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether every record must arrive."""
        ...

    @property
    def every(self) -> float:
        """Seconds for which records are gathered before they are written together; 0: none."""
        ...

    def write(self, records: Sequence[StepRecord]) -> None:
        """Any exception means: not written. One that keeps then gets the same records again, perhaps with more."""
        ...

    def close(self) -> None: ...


class MetricsLog:
    """Entered around the run. Of all ranks, only the first has sinks."""

    def __init__(self, sinks: Iterable[Sink], report: Callable[[str], None]) -> None:
        self._lanes = [_Lane(sink, report) for sink in sinks]
        self._report = report
        self._lenient = False

    def __enter__(self) -> MetricsLog:
        for lane in self._lanes:
            lane.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left. Raises StorageError when a sink that keeps everything could not, unless `be_lenient`."""
        for lane in self._lanes:
            lane.end()
        deadline = time.monotonic() + _PATIENCE
        failures = [failure for lane in self._lanes if (failure := lane.join(deadline)) is not None]
        if failures and error is None:  # else the first error is the one to show
            if not self._lenient:
                raise failures[0]
            self._report(f"note: the last numbers are lost: {failures[0]}")

    def be_lenient(self) -> None:
        """The run is stopped and saved, and will go on: numbers that cannot be kept are no failure of it."""
        self._lenient = True

    def write(self, record: StepRecord) -> None:
        """Never waits, never fails."""
        for lane in self._lanes:
            lane.write(record)

    def flush(self) -> None:
        """Let the threads write what there is."""
        for lane in self._lanes:
            lane.flush()


def open_metrics(
    config: Config, run: Run, world: World, store: Store | None, report: Callable[[str], None]
) -> MetricsLog:
    """The log of this rank. store: of the run's checkpoints; the metrics go into the run's folder beside them.

    Raises StorageError when the local file or the bucket cannot be opened, ConfigError when a library is missing.
    """
    from trainer.metrics.files import BucketParts, LocalFile
    from trainer.metrics.sinks import open_sinks

    if not world.is_first:
        return MetricsLog((), report)
    sinks: list[Sink] = [*open_sinks(config, run)]
    if config.metrics.file:
        sinks.insert(0, LocalFile(Path(config.metrics.file)))
    if store is not None:
        sinks.append(BucketParts(open_store(run_folder(store.uri), create=True), run.attempt))
    return MetricsLog(sinks, report)


class _Lane:
    """A sink with its thread and the records that wait for it."""

    def __init__(self, sink: Sink, report: Callable[[str], None]) -> None:
        self._sink = sink
        self._report = report
        self._waiting: list[StepRecord] = []
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._told = ""
        self._failure: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, record: StepRecord) -> None:
        with self._guard:
            self._waiting.append(record)
        if self._sink.every == 0:
            self._wake.set()

    def flush(self) -> None:
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def join(self, deadline: float) -> StorageError | None:
        """Wait for the thread: until the deadline only, unless everything must arrive. Returns what went wrong."""
        self._thread.join(None if self._sink.keeps else max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._say(f"note: {self._sink.name} did not take the last numbers in time")
        return self._failure

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(self._sink.every or None)
            self._wake.clear()
            self._pass_on()
        self._pass_on()
        try:
            self._sink.close()
        except Exception as error:  # foreign libraries raise anything; none of it may end a run
            self._say(f"note: {self._sink.name}: {_first_line(error)}")

    def _pass_on(self) -> None:
        with self._guard:
            records = list(self._waiting)
        self._failure = None
        if not records:
            return
        try:
            self._sink.write(records)
        except Exception as error:  # as above
            what = "numbers are kept back" if self._sink.keeps else "numbers are lost"
            self._say(f"note: {self._sink.name}: {what}: {_first_line(error)}")
            if self._sink.keeps:
                self._failure = error if isinstance(error, StorageError) else StorageError(_first_line(error))
                return
        else:
            self._told = ""
        with self._guard:
            del self._waiting[: len(records)]

    def _say(self, line: str) -> None:
        if line != self._told:  # an outage is told once
            self._report(line)
        self._told = line


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
