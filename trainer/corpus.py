"""The text that is learned, as one long row of bytes: files of this machine, or objects of a bucket.

Nothing is copied or loaded as a whole; a window is read where it lies.
"""

from __future__ import annotations

import bisect
import fnmatch
import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.store import Store, open_store
from trainer.errors import DataError

PYTHON_STDLIB = "python-stdlib"


def open_corpus(source: str) -> Corpus:
    """`python-stdlib`, a path or a bucket folder, each of the last two with an optional `:GLOB`,
    matched against the names below it (`*` also takes slashes).

    Raises DataError when there is nothing to read.
    """
    if source == PYTHON_STDLIB:
        return LocalCorpus(source, _stdlib_files())
    place, pattern = _split_pattern(source)
    if place.startswith("file://"):
        place = place.removeprefix("file://")
    if "://" in place:
        return BucketCorpus(source, open_store(place), pattern)
    return LocalCorpus(source, _files(Path(place), pattern))


@dataclass(frozen=True, slots=True)
class Piece:
    """A file of the corpus. name: relative to its root, with slashes. size: bytes."""

    name: str
    size: int


class Corpus(Protocol):
    """Bytes at a position. `read` may be called from another thread than the constructor."""

    @property
    def source(self) -> str: ...

    @property
    def total(self) -> int:
        """Size in bytes."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when a name, a size or the order of the files changes."""
        ...

    def read(self, positions: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        """The windows that begin there. Shape (len(positions), length). Raises DataError."""
        ...


class Extents:
    """Where a byte of the whole lies in its pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._starts = [0, *accumulate(piece.size for piece in pieces)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(f"{piece.name}\0{piece.size}\n".encode(errors="surrogateescape"))
        self.fingerprint = digest.hexdigest()[:32]

    @property
    def total(self) -> int:
        return self._starts[-1]

    def locate(self, position: int, length: int) -> Iterator[tuple[int, int, int]]:
        """(piece, offset in it, bytes) for each stretch of the window, in order. Empty pieces are skipped."""
        index = bisect.bisect_right(self._starts, position) - 1
        while length > 0:
            offset = position - self._starts[index]
            count = min(length, self._starts[index + 1] - position)
            if count > 0:
                yield index, offset, count
            position, length, index = position + count, length - count, index + 1


class LocalCorpus:
    """Files of this machine, in the order of their names."""

    def __init__(self, source: str, files: Sequence[tuple[str, Path]]) -> None:
        self.source = source
        self._paths = [path for _, path in files]
        try:
            pieces = [Piece(name, path.stat().st_size) for name, path in files]
        except OSError as error:
            raise DataError(f"data={source}: cannot read {error.filename}: {error.strerror}") from error
        self._extents = Extents(pieces)

    @property
    def total(self) -> int:
        return self._extents.total

    @property
    def fingerprint(self) -> str:
        return self._extents.fingerprint

    def read(self, positions: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        rows = np.empty((len(positions), length), dtype=np.uint8)
        for row, position in zip(rows, positions.tolist(), strict=True):
            filled = 0
            for index, offset, count in self._extents.locate(position, length):
                row[filled : filled + count] = np.frombuffer(self._stretch(index, offset, count), np.uint8)
                filled += count
        return rows

    def _stretch(self, index: int, offset: int, count: int) -> bytes:
        path = self._paths[index]
        try:
            with path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), count, offset)
        except OSError as error:
            raise DataError(f"data={self.source}: cannot read {path}: {error.strerror}") from error
        if len(data) != count:
            raise DataError(f"data={self.source}: {path} became shorter during the run")
        return data


class BucketCorpus:
    """Objects under a bucket folder, in the order of their names. Each window is one ranged request."""

    def __init__(self, source: str, store: Store, pattern: str) -> None:
        self.source = source
        self._store = store
        entries = [entry for entry in store.entries("") if fnmatch.fnmatchcase(entry.path, pattern.removeprefix("**/"))]
        entries.sort(key=lambda entry: entry.path)
        if not entries:
            raise DataError(f"data={source}: no object here matches {pattern}")
        self._names = [entry.path for entry in entries]
        self._extents = Extents([Piece(entry.path, entry.size) for entry in entries])

    @property
    def total(self) -> int:
        return self._extents.total

    @property
    def fingerprint(self) -> str:
        return self._extents.fingerprint

    def read(self, positions: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        wanted: dict[int, list[tuple[int, int, int, int]]] = {}
        for row, position in enumerate(positions.tolist()):
            filled = 0
            for index, offset, count in self._extents.locate(position, length):
                wanted.setdefault(index, []).append((row, filled, offset, count))
                filled += count
        rows = np.empty((len(positions), length), dtype=np.uint8)
        for index, stretches in wanted.items():
            offsets = [offset for _, _, offset, _ in stretches]
            counts = [count for _, _, _, count in stretches]
            found = self._store.ranges(self._names[index], offsets, counts)
            for (row, at, _, count), data in zip(stretches, found, strict=True):
                rows[row, at : at + count] = np.frombuffer(data, np.uint8)
        return rows


def _stdlib_files() -> list[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    files = _walk(root, "*.py", skip=frozenset({"site-packages", "dist-packages"}))
    if not files:
        raise DataError(f"data={PYTHON_STDLIB}: this Python has no source files in {root}")
    return files


def _files(place: Path, pattern: str) -> list[tuple[str, Path]]:
    if place.is_file():
        return [(place.name, place)]
    if not place.is_dir():
        raise DataError(f"data={place}: no such file or folder")
    files = _walk(place, pattern, skip=frozenset())
    if not files:
        raise DataError(f"data={place}: no file here matches {pattern}")
    return files


def _walk(root: Path, pattern: str, skip: frozenset[str]) -> list[tuple[str, Path]]:
    """Files below `root` by their relative names, without hidden ones and without folders named in `skip`."""
    found: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        found += [
            (f"{prefix}{name}", Path(folder, name))
            for name in names
            if not name.startswith(".") and _matches(f"{prefix}{name}", pattern)
        ]
    return sorted(item for item in found if item[1].is_file())


def _matches(name: str, pattern: str) -> bool:
    """`*` stands for any text, slashes too, so `*.py` and `**/*.py` mean the same."""
    return fnmatch.fnmatchcase(name, pattern.removeprefix("**/"))


def _split_pattern(source: str) -> tuple[str, str]:
    """`place:GLOB` -> both; a place whose own name holds a colon is taken as a whole when it exists."""
    scheme, separator, rest = source.rpartition("://")
    if not separator and Path(source).exists():
        return source, "*"
    place, colon, pattern = rest.rpartition(":")
    if not colon or not pattern:
        return source, "*"
    return f"{scheme}{separator}{place}", pattern
