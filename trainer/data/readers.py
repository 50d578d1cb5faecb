"""Readers of windows in place: from files, memory-mapped files, or objects of a bucket."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.store import Store
from trainer.data.extents import Span
from trainer.engine import TokenArray
from trainer.errors import DataError

_BLOCK = 1 << 20
_KEPT_WHOLE = 256 << 20
_OPEN_FILES = 128
_REQUESTS = 16  # objects that are read at the same time


class Reader(Protocol):
    """Reads spans of pieces; may be called from several threads in parallel."""

    def fill_rows(self, rows: TokenArray, stretches: Sequence[Span]) -> None:
        """Copy each span to its place in the rows.

        Raises:
            DataError: A piece is missing, shorter than before, or unreadable.
            StorageError: The bucket cannot be read.
        """
        ...


class FileReader:
    """Reads bytes of any number of files; the first ones stay open."""

    def __init__(self, source: str, paths: Sequence[Path]) -> None:
        self._source = source
        self._paths = paths
        self._open: dict[int, int] = {}  # descriptors by piece; none is ever removed, so threads need no lock to read
        self._guard = threading.Lock()
        weakref.finalize(self, _close, self._open).atexit = False  # threads may still read then

    def fill_rows(self, rows: TokenArray, stretches: Sequence[Span]) -> None:
        for part in stretches:
            into = rows[part.row, part.column : part.column + part.count].data
            try:
                count = self._read(part.piece, part.offset, into)
            except OSError as error:
                path = self._paths[part.piece]
                raise DataError(f"data={self._source}: cannot read {path}: {error.strerror}") from error
            if count != part.count:
                raise DataError(f"data={self._source}: {self._paths[part.piece]} became shorter during the run")

    def _read(self, piece: int, offset: int, into: memoryview) -> int:
        """Read into the buffer, and return the number of bytes read."""
        file = self._open.get(piece)
        if file is not None:
            return os.preadv(file, [into], offset)
        file = os.open(self._paths[piece], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe blocks nothing
        with self._guard:
            stays = len(self._open) < _OPEN_FILES and self._open.setdefault(piece, file) == file
        try:
            return os.preadv(file, [into], offset)
        finally:
            if not stays:
                os.close(file)


def _close(files: dict[int, int]) -> None:
    for file in files.values():
        os.close(file)


class MappedReader:
    """Reads tokens of memory-mapped shards; a shard is mapped when it is first read."""

    def __init__(self, source: str, paths: Sequence[Path], dtype: np.dtype[Any]) -> None:
        self._source = source
        self._paths = paths
        self._dtype = dtype
        self._maps: dict[int, npt.NDArray[Any]] = {}

    def fill_rows(self, rows: TokenArray, stretches: Sequence[Span]) -> None:
        for part in stretches:
            shard = self._shard(part.piece)
            rows[part.row, part.column : part.column + part.count] = shard[part.offset : part.offset + part.count]

    def _shard(self, piece: int) -> npt.NDArray[Any]:
        found = self._maps.get(piece)
        if found is None:
            try:
                # As a plain array: slices of np.memmap are slow.
                found = np.asarray(np.memmap(self._paths[piece], dtype=self._dtype, mode="r"))
            except (OSError, ValueError) as error:
                raise DataError(f"data={self._source}: cannot map {self._paths[piece]}: {error}") from error
            self._maps[piece] = found
        return found


class BucketReader:
    """Reads items of objects by range requests, several objects at a time, near ranges of an object together.

    A corpus of up to 256 MiB is kept in memory as it is read, in blocks of 1 MiB, so that no byte is requested twice.
    Of a larger one only the windows are read, because their surroundings are seldom needed again.
    """

    def __init__(self, store: Store, names: Sequence[str], sizes: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Remember what to read.

        Args:
            store: The folder of the objects.
            names: Name of each object.
            sizes: Bytes of each object.
            dtype: Type of the items.
        """
        self._store = store
        self._names = names
        self._sizes = sizes
        self._dtype = dtype
        self._keep = sum(sizes) <= _KEPT_WHOLE
        self._blocks: dict[tuple[int, int], bytes] = {}
        self._guard = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=_REQUESTS, thread_name_prefix="bucket")

    def fill_rows(self, rows: TokenArray, stretches: Sequence[Span]) -> None:
        if self._keep:
            self._fetch_blocks(stretches)
            for part in stretches:
                self._put(rows, part, self._from_blocks(part))
            return
        groups = list(_by_piece(stretches).items())
        for (_, parts), found in zip(groups, self._pool.map(self._windows, groups), strict=True):
            for part, data in zip(parts, found, strict=True):
                self._put(rows, part, data)

    def _put(self, rows: TokenArray, part: Span, data: bytes) -> None:
        rows[part.row, part.column : part.column + part.count] = np.frombuffer(data, self._dtype)

    def _windows(self, group: tuple[int, list[Span]]) -> list[bytes]:
        piece, parts = group
        width = self._dtype.itemsize
        return self._ranges(piece, [part.offset * width for part in parts], [part.count * width for part in parts])

    def _fetch_blocks(self, stretches: Iterable[Span]) -> None:
        needed: dict[int, set[int]] = {}
        for part in stretches:
            begin, end = part.offset * self._dtype.itemsize, (part.offset + part.count) * self._dtype.itemsize
            needed.setdefault(part.piece, set()).update(range(begin // _BLOCK, (end - 1) // _BLOCK + 1))
        with self._guard:
            missing = [
                (piece, sorted(absent))
                for piece, numbers in needed.items()
                if (absent := {number for number in numbers if (piece, number) not in self._blocks})
            ]
        for (piece, numbers), found in zip(missing, self._pool.map(self._whole_blocks, missing), strict=True):
            with self._guard:
                self._blocks.update({(piece, number): data for number, data in zip(numbers, found, strict=True)})

    def _whole_blocks(self, group: tuple[int, list[int]]) -> list[bytes]:
        piece, numbers = group
        starts = [number * _BLOCK for number in numbers]
        return self._ranges(piece, starts, [min(_BLOCK, self._sizes[piece] - start) for start in starts])

    def _from_blocks(self, part: Span) -> bytes:
        begin, end = part.offset * self._dtype.itemsize, (part.offset + part.count) * self._dtype.itemsize
        found = b"".join(self._blocks[part.piece, n] for n in range(begin // _BLOCK, (end - 1) // _BLOCK + 1))
        start = begin % _BLOCK
        return found[start : start + end - begin]

    def _ranges(self, piece: int, starts: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        found = self._store.read_ranges(self._names[piece], starts, counts)
        if [len(data) for data in found] != list(counts):
            raise DataError(f"data={self._store.uri}/{self._names[piece]} became shorter during the run")
        return found


def _by_piece(stretches: Iterable[Span]) -> dict[int, list[Span]]:
    groups: dict[int, list[Span]] = {}
    for part in stretches:
        groups.setdefault(part.piece, []).append(part)
    return groups
