"""Sinks for records as JSON lines: a local file, written immediately, and the bucket, written in parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainer.checkpoint.store import Store
from trainer.errors import StorageError
from trainer.metrics.record import StepRecord

_PART_SECONDS = 30.0


class LocalFile:
    """Appends to a local file; the constructor raises StorageError when that is impossible."""

    must_keep_all = True
    interval_s = 0.0

    def __init__(self, path: Path) -> None:
        self.name = f"metrics.file={path}"
        self._path = path
        self._append("")

    def write(self, records: Sequence[StepRecord]) -> None:
        self._append("".join(record.to_json_line() for record in records))

    def close(self) -> None:
        """Do nothing: no file is open between two writes."""

    def _append(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as out:
                before, left = out.seek(0, os.SEEK_END), memoryview(text.encode())
                try:
                    while left:
                        left = left[out.write(left) :]
                except OSError:
                    out.truncate(before)  # no partial line: the caller retries all of it
                    raise
        except OSError as error:
            raise StorageError(f"{self.name}: cannot be written: {error.strerror}") from error


class BucketParts:
    """Writes metrics/attempt-0001/part-00001.jsonl and so on in the run's folder; parts are never overwritten.

    A write that failed may have succeeded with its response lost. The retry uses the same name and the same lines, and
    later lines follow only after it, so no line is stored twice.
    """

    must_keep_all = True
    interval_s = _PART_SECONDS

    def __init__(self, store: Store, attempt: int) -> None:
        self.name = f"{store.uri}/metrics"
        self._store = store
        self._folder = f"metrics/attempt-{attempt:04d}"
        self._part = 1
        self._pending = b""
        self._pending_records = 0

    def write(self, records: Sequence[StepRecord]) -> None:
        """Write the records as one part, after the part of a failed earlier call.

        Raises:
            StorageError: The bucket is not writable; the next call must begin with the same records.
        """
        done = 0
        if self._pending:
            self._write_pending()
            done = self._pending_records
            self._pending = b""
        if len(records) > done:
            self._pending = "".join(record.to_json_line() for record in records[done:]).encode()
            self._pending_records = len(records)
            self._write_pending()
        self._pending, self._pending_records = b"", 0

    def close(self) -> None:
        """Do nothing: no part is open between two writes."""

    def _write_pending(self) -> None:
        # The same attempt may have been started before: its parts stay, and ours get the next free number.
        while not self._store.create(f"{self._folder}/part-{self._part:05d}.jsonl", self._pending):
            self._part += 1
        self._part += 1
