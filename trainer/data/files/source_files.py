"""Files and objects of buckets that can be opened, and read from any place."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainer.checkpoint.store import ObjectEntry, Store
from trainer.data.files.forms import HEAD_BYTES
from trainer.data.files.local_files import check_unchanged, open_regular_file, read_state
from trainer.errors import DataError

_BUFFER = 8 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file or object that can be opened.

    Attributes:
        name: Relative name, with slashes.
        size: Bytes as stored.
        open: Returns a seekable stream of the bytes as stored.
        check: Raises DataError when the file has changed since it was found.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    check: Callable[[], None] = lambda: None


def make_local_file(name: str, path: Path) -> SourceFile:
    """Return a file of this machine.

    Raises:
        DataError: It cannot be read, or is no regular file.
    """
    state = read_state(path)
    return SourceFile(name, state.size, lambda: open_regular_file(path), lambda: check_unchanged(path, state))


def make_object_file(store: Store, entry: ObjectEntry) -> SourceFile:
    """Return an object of a bucket."""

    def opened() -> IO[bytes]:
        return io.BufferedReader(_Ranged(store, entry.path, entry.size), max(_BUFFER, HEAD_BYTES))

    return SourceFile(entry.path, entry.size, opened)


class _Ranged(io.RawIOBase):
    """An object of a bucket as a stream, read by range requests."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store = store
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), self._size - self._at)
        if count <= 0:
            return 0
        (data,) = self._store.read_ranges(self._name, [self._at], [count])
        if len(data) != count:
            raise DataError(f"{self._store.uri}/{self._name} became shorter while it was read")
        view[:count] = data
        self._at += count
        return count
