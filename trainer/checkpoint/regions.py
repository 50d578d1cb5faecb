"""Reads any regions of a checkpoint's tensors, whoever wrote them in whatever pieces: only the bytes that are needed.

Regions are read by rows of the pieces that were written, many of them at once; a tensor's regions for all devices of a
process are cut from one reading. Parts that were kept in memory when they were checked are not read again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from trainer.checkpoint.layout import Broken, Manifest, Part, part_path
from trainer.checkpoint.snapshot import read_header
from trainer.checkpoint.store import Store
from trainer.checkpoint.streams import fill
from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.box import Box, Piece

_READERS = 16  # regions, or headers, that are read at once
_AHEAD = 2 << 30  # bytes of tensors that are begun before the first of them is taken, besides that one
_BLOCK = 32 << 20  # bytes of rows that are read at once when they must be cut


@dataclass(frozen=True, slots=True)
class Stored:
    """A region as it was written. path: of its part. start: where its values begin in it, in bytes."""

    box: Box
    path: str
    start: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """shape: of the whole."""

    shape: tuple[int, ...]
    stored: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a checkpoint holds, by tensor name. kept: parts that are in memory, by path."""

    store: Store
    tensors: Mapping[str, Tensor]
    kept: Mapping[str, memoryview]

    def assemble(self, wanted: Mapping[str, Sequence[Piece]]) -> Iterator[tuple[Piece, FloatArray]]:
        """The values of each wanted piece. wanted: by the name of the tensor to take the values from.

        Raises StorageError for a tensor or a region that is not there, or cannot be read.
        """
        with ThreadPoolExecutor(_READERS, thread_name_prefix="restore") as pool:
            left, begun, ahead = deque(wanted.items()), deque[_Reading](), 0
            try:
                while left or begun:
                    while left and (not begun or ahead + _bytes(left[0][1]) <= _AHEAD):
                        begun.append(self._begin(pool, *left.popleft()))
                        ahead += begun[-1].bytes
                    reading = begun.popleft()
                    ahead -= reading.bytes
                    yield from reading.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def whole(self, name: str) -> FloatArray:
        """All values of a tensor. Raises StorageError."""
        tensor = self.tensors.get(name)
        shape = tensor.shape if tensor is not None else ()
        return next(self.assemble({name: [Piece(name, shape, Box.whole(shape))]}))[1]

    def _begin(self, pool: ThreadPoolExecutor, name: str, pieces: Sequence[Piece]) -> _Reading:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise StorageError(f"{self.store.uri}: the checkpoint has no tensor {name}")
        targets = [(piece, np.empty(piece.box.extent, np.float32)) for piece in pieces]
        filled, jobs = [0] * len(targets), list[Future[None]]()
        for stored in tensor.stored:
            needed: dict[int, _Overlap] = {}
            for index, (piece, values) in enumerate(targets):
                overlap = piece.box.overlap(stored.box)
                if overlap is not None:
                    filled[index] += overlap.size
                    needed[index] = _Overlap(piece.box, values, overlap)
            first = next(iter(needed), -1)
            if len(needed) == 1 and stored.path in self.kept and needed[first].box == stored.box:
                targets[first] = (pieces[first], self._view(stored))
            elif needed:
                jobs.append(pool.submit(self._read, stored, list(needed.values())))
        for (piece, _), count in zip(targets, filled, strict=True):
            if count != piece.box.size:
                known = f"{count:,} of {piece.box.size:,} values at {piece.box.offset}"
                raise StorageError(f"{self.store.uri}: of {name} the checkpoint has {known}")
        return _Reading(_bytes(pieces), targets, jobs)

    def _read(self, stored: Stored, needed: Sequence[_Overlap]) -> None:
        """Copy what is needed of one written region to where it is needed."""
        row = _row_bytes(stored.box)
        if len(needed) == 1 and _is_run(needed[0], stored.box):
            box, values, overlap = needed[0]
            low, high = _rows(overlap.within(box))
            start = stored.start + _rows(overlap.within(stored.box))[0] * row
            self._fill(stored.path, start, values.reshape(-1).data.cast("B")[low * row : high * row])
            return
        bounds = [_rows(overlap.within(stored.box)) for _, _, overlap in needed]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        step = max(1, _BLOCK // max(1, row))
        for at in range(low, high, step):
            block = _block_box(stored.box, at, min(at + step, high))
            rows = np.empty(block.extent, np.float32)
            self._fill(stored.path, stored.start + at * row, rows.reshape(-1).data.cast("B"))
            for box, values, overlap in needed:
                common = overlap.overlap(block)
                if common is not None:
                    values[common.within(box).slices()] = rows[common.within(block).slices()]

    def _view(self, stored: Stored) -> FloatArray:
        """A region of a part in memory, where it lies there."""
        values = np.frombuffer(self.kept[stored.path], np.float32, stored.box.size, stored.start)
        return values.reshape(stored.box.extent)

    def _fill(self, path: str, start: int, target: memoryview) -> None:
        held = self.kept.get(path)
        if held is None:
            fill(self.store, path, start, target)
        else:  # by numpy, which lets other threads run while it copies
            np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(held, np.uint8)[start : start + len(target)])


class _Overlap(NamedTuple):
    """What of a written region a target needs. box: of the target. values: its array. overlap: of both."""

    box: Box
    values: FloatArray
    overlap: Box


@dataclass(frozen=True, slots=True)
class _Reading:
    """A tensor on its way. bytes: of all its targets."""

    bytes: int
    targets: Sequence[tuple[Piece, FloatArray]]
    jobs: Sequence[Future[None]]

    def result(self) -> Sequence[tuple[Piece, FloatArray]]:
        for job in self.jobs:
            job.result()
        return self.targets


def open_contents(
    store: Store,
    manifest: Manifest,
    kept: Mapping[str, memoryview] = MappingProxyType({}),
    needed: Sequence[Piece] = (),
) -> Contents:
    """Read the headers of all parts; of those in memory alone where they hold all that is `needed`, as after a restart
    on the same mesh: hundreds of processes need not read each other's headers then.

    kept: parts that are in memory, by path. Raises StorageError, also for a header that is not ours.
    """
    if needed:
        here = [part for part in manifest.parts if part_path(manifest.step, part.name) in kept]
        contents = _contents(store, manifest.step, here, kept)
        if len(here) == len(manifest.parts) or _holds(contents.tensors, needed):
            return contents
    return _contents(store, manifest.step, manifest.parts, kept)


def _contents(store: Store, step: int, parts: Sequence[Part], kept: Mapping[str, memoryview]) -> Contents:
    found: dict[str, list[Stored]] = defaultdict(list)
    shapes: dict[str, tuple[int, ...]] = {}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="headers") as pool:
        for part, entries in zip(parts, pool.map(partial(_entries, store, step, kept), parts), strict=True):
            for piece, start in entries:
                if shapes.setdefault(piece.name, piece.shape) != piece.shape:
                    raise StorageError(f"{store.uri}: {part.name} has another shape of {piece.name} than other parts")
                found[piece.name].append(Stored(piece.box, part_path(step, part.name), start))
    tensors = {name: Tensor(shapes[name], tuple(stored)) for name, stored in found.items()}
    return Contents(store, MappingProxyType(tensors), kept)


def _holds(tensors: Mapping[str, Tensor], needed: Sequence[Piece]) -> bool:
    """Whether every value of the pieces is there. Each value of a checkpoint is stored once."""
    for piece in needed:
        tensor = tensors.get(piece.name)
        if tensor is None or tensor.shape != piece.shape:
            return False
        overlaps = (piece.box.overlap(stored.box) for stored in tensor.stored)
        if sum(overlap.size for overlap in overlaps if overlap is not None) != piece.box.size:
            return False
    return True


def _entries(store: Store, step: int, kept: Mapping[str, memoryview], part: Part) -> list[tuple[Piece, int]]:
    path = part_path(step, part.name)
    held = kept.get(path)
    if held is not None:
        head = held[: part.header]
    else:
        head = memoryview(bytearray(part.header))
        store.read_into(path, 0, head)
    try:
        return [(entry.piece, entry.start) for entry in read_header(head)]
    except Broken as error:
        raise StorageError(f"{store.uri}/{path}: {error}") from error


def _is_run(needed: _Overlap, stored: Box) -> bool:
    """Whether the overlap is one stretch of bytes in the file and in the target: all of every row of both."""
    return needed.overlap.extent[1:] == needed.box.extent[1:] == stored.extent[1:]


def _bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def _rows(inner: Box) -> tuple[int, int]:
    """First row, and the one behind the last; a scalar is one row."""
    return (inner.offset[0], inner.end[0]) if inner.extent else (0, 1)


def _row_bytes(box: Box) -> int:
    return 4 * Box(box.offset[1:], box.extent[1:]).size


def _block_box(stored: Box, low: int, high: int) -> Box:
    if not stored.extent:
        return stored
    return Box((stored.offset[0] + low, *stored.offset[1:]), (high - low, *stored.extent[1:]))
