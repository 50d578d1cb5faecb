"""Delivery of records to sinks; each sink has its own thread, so none of them delays training.

The local file and the bucket must keep every record: when a write fails, the log reports it, keeps the records and
retries; giving up at the end is an error. The other sinks are optional: records that they do not take are dropped.
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

_END_WAIT_S = 15.0  # how long the end of a run waits for an optional sink


class Sink(Protocol):
    """A destination of records, used by one thread only."""

    @property
    def name(self) -> str:
        """Name for messages, such as `metrics.file=metrics.jsonl`."""
        ...

    @property
    def must_keep_all(self) -> bool:
        """Whether every record must be delivered."""
        ...

    @property
    def interval_s(self) -> float:
        """Seconds over which records are collected before they are written together; 0 writes each immediately."""
        ...

    def write(self, records: Sequence[StepRecord]) -> None:
        """Write the records.

        Any exception means that nothing was written. A sink with `must_keep_all` then gets the same records again,
        perhaps followed by more.
        """
        ...

    def close(self) -> None:
        """Release the sink's resources."""
        ...


class MetricsLog:
    """Context manager around a run that passes records to sinks; only the first rank has sinks."""

    def __init__(self, sinks: Iterable[Sink], report: Callable[[str], None]) -> None:
        self._threads = [_SinkThread(sink, report) for sink in sinks]
        self._report = report
        self._lenient = False

    def __enter__(self) -> MetricsLog:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the records that are left.

        Raises:
            StorageError: A sink that must keep all records could not, and `tolerate_lost_records` was not called.
        """
        for thread in self._threads:
            thread.end()
        deadline = time.monotonic() + _END_WAIT_S
        failures = [failure for thread in self._threads if (failure := thread.join(deadline)) is not None]
        if failures and error is None:  # else the first error is the one to show
            if not self._lenient:
                raise failures[0]
            self._report(f"note: the last metrics are lost: {failures[0]}")

    def tolerate_lost_records(self) -> None:
        """Do not fail at the end when records are lost: the run is saved and will be resumed."""
        self._lenient = True

    def write(self, record: StepRecord) -> None:
        """Queue a record; never waits and never fails."""
        for thread in self._threads:
            thread.write(record)

    def flush(self) -> None:
        """Make the threads write all queued records now."""
        for thread in self._threads:
            thread.flush()


def open_metrics(
    config: Config, run: Run, world: World, store: Store | None, report: Callable[[str], None]
) -> MetricsLog:
    """Open the metrics log of this rank.

    Args:
        config: Names the sinks.
        run: The run and its attempt.
        world: The ranks.
        store: Of the run's checkpoints; the metrics are written to the run's folder beside them.
        report: Prints one line for the user.

    Raises:
        StorageError: The local file or the bucket cannot be opened.
        ConfigError: A library is missing.
    """
    from trainer.metrics.files import BucketParts, LocalFile
    from trainer.metrics.sinks import open_sinks

    if not world.is_first:
        return MetricsLog((), report)
    sinks: list[Sink] = [*open_sinks(config, run)]
    if config.metrics.file:
        sinks.insert(0, LocalFile(Path(config.metrics.file)))
    if store is not None:
        sinks.append(
            BucketParts(open_store(run_folder(store.uri), create=True, retry_seconds=store.retry_seconds), run.attempt)
        )
    return MetricsLog(sinks, report)


class _SinkThread:
    """A sink with its thread and the records that wait for it."""

    def __init__(self, sink: Sink, report: Callable[[str], None]) -> None:
        self._sink = sink
        self._report = report
        self._waiting: list[StepRecord] = []
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._last_note = ""
        self._failure: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, record: StepRecord) -> None:
        with self._guard:
            self._waiting.append(record)
        if self._sink.interval_s == 0:
            self._wake.set()

    def flush(self) -> None:
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def join(self, deadline: float) -> StorageError | None:
        """Wait for the thread, and return its error, or None.

        Without `must_keep_all` it waits only until the deadline.
        """
        self._thread.join(None if self._sink.must_keep_all else max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._note(f"note: {self._sink.name} did not accept the last metrics in time")
        return self._failure

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(self._sink.interval_s or None)
            self._wake.clear()
            self._deliver()
        self._deliver()
        try:
            self._sink.close()
        except Exception as error:  # foreign libraries raise anything; none of it may end a run
            self._note(f"note: {self._sink.name}: {_first_line(error)}")

    def _deliver(self) -> None:
        with self._guard:
            records = list(self._waiting)
        self._failure = None
        if not records:
            return
        try:
            self._sink.write(records)
        except Exception as error:  # as above
            effect = "metrics are held back" if self._sink.must_keep_all else "metrics are lost"
            self._note(f"note: {self._sink.name}: {effect}: {_first_line(error)}")
            if self._sink.must_keep_all:
                self._failure = error if isinstance(error, StorageError) else StorageError(_first_line(error))
                return
        else:
            self._last_note = ""
        with self._guard:
            del self._waiting[: len(records)]

    def _note(self, line: str) -> None:
        if line != self._last_note:  # an outage is reported once
            self._report(line)
        self._last_note = line


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
