"""Records as JSON lines: in a local file at once, in the bucket in parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainer.checkpoint.store import Store
from trainer.errors import StorageError
from trainer.metrics.record import StepRecord

_PART_SECONDS = 30.0


class LocalFile:
    """Appended to. The constructor raises StorageError when that is not possible."""

    keeps = True
    every = 0.0

    def __init__(self, path: Path) -> None:
        self.name = f"metrics.file={path}"
        self._path = path
        self._append("")

    def write(self, records: Sequence[StepRecord]) -> None:
        self._append("".join(record.as_line() for record in records))

    def close(self) -> None:
        """Nothing is held open between two writes."""

    def _append(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as out:
                before, left = out.seek(0, os.SEEK_END), memoryview(text.encode())
                try:
                    while left:
                        left = left[out.write(left) :]
                except OSError:
                    out.truncate(before)  # no half line: all of it is tried again
                    raise
        except OSError as error:
            raise StorageError(f"{self.name}: cannot be written: {error.strerror}") from error


class BucketParts:
    """metrics/attempt-0001/part-00001.jsonl and so on, in the run's folder. Parts are never written over.

    A part whose write failed may be there all the same, its answer lost. So it is tried again under the same name with
    the same lines, and only then do later lines follow: no line comes twice.
    """

    keeps = True
    every = _PART_SECONDS

    def __init__(self, store: Store, attempt: int) -> None:
        self.name = f"{store.uri}/metrics"
        self._store = store
        self._folder = f"metrics/attempt-{attempt:04d}"
        self._part = 1
        self._begun = b""
        self._begun_records = 0

    def write(self, records: Sequence[StepRecord]) -> None:
        """Raises StorageError; the same records must come first in the next call then."""
        done = 0
        if self._begun:
            self._settle()
            done = self._begun_records
            self._begun = b""
        if len(records) > done:
            self._begun = "".join(record.as_line() for record in records[done:]).encode()
            self._begun_records = len(records)
            self._settle()
        self._begun, self._begun_records = b"", 0

    def close(self) -> None:
        """Nothing is held open between two parts."""

    def _settle(self) -> None:
        # Somebody may have run the same attempt before: his parts stay, ours get the next free number.
        while not self._store.create(f"{self._folder}/part-{self._part:05d}.jsonl", self._begun):
            self._part += 1
        self._part += 1
