"""Reads any regions of a checkpoint's tensors, whichever processes wrote them: only the bytes that are needed.

Regions are read by rows of the written ones, many of them concurrently; a tensor's regions for all devices of a process
are cut from one read. Parts that were kept in memory when they were verified are not read again.
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

from trainer.checkpoint.chunks import read_object_into
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, Part
from trainer.checkpoint.snapshot import parse_header
from trainer.checkpoint.store import Store
from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion

_READERS = 16  # regions, or headers, that are read concurrently
_AHEAD = 2 << 30  # bytes of tensors that are begun before the first of them is taken, besides that one
_BLOCK = 32 << 20  # bytes of rows that are read together when they must be cut


@dataclass(frozen=True, slots=True)
class Stored:
    """A region as it was written.

    Attributes:
        box: Its place in the tensor.
        path: Of its part.
        start: Byte at which its values begin in the part.
    """

    box: Box
    path: str
    start: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a checkpoint.

    Attributes:
        shape: Of the complete tensor.
        stored: The regions that were written.
    """

    shape: tuple[int, ...]
    stored: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a checkpoint, by tensor name.

    Attributes:
        kept: Parts that are in memory, by path.
    """

    store: Store
    tensors: Mapping[str, Tensor]
    kept: Mapping[str, memoryview]

    def read_pieces(self, requested: Mapping[str, Sequence[TensorRegion]]) -> Iterator[tuple[TensorRegion, FloatArray]]:
        """Yield the values of each requested region, by the name of the tensor to read them from.

        Raises:
            StorageError: A tensor or a region is missing or cannot be read.
        """
        with ThreadPoolExecutor(_READERS, thread_name_prefix="restore") as pool:
            left, begun, ahead = deque(requested.items()), deque[_Reading](), 0
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

    def read_tensor(self, name: str) -> FloatArray:
        """Return all values of a tensor.

        Raises:
            StorageError: It is missing or cannot be read.
        """
        tensor = self.tensors.get(name)
        shape = tensor.shape if tensor is not None else ()
        return next(self.read_pieces({name: [TensorRegion(name, shape, Box.whole(shape))]}))[1]

    def _begin(self, pool: ThreadPoolExecutor, name: str, pieces: Sequence[TensorRegion]) -> _Reading:
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
        """Copy what is needed of one written region to its targets."""
        row = _row_bytes(stored.box)
        if len(needed) == 1 and _is_run(needed[0], stored.box):
            box, values, overlap = needed[0]
            low, high = _rows(overlap.relative_to(box))
            start = stored.start + _rows(overlap.relative_to(stored.box))[0] * row
            self._fill(stored.path, start, values.reshape(-1).data.cast("B")[low * row : high * row])
            return
        bounds = [_rows(overlap.relative_to(stored.box)) for _, _, overlap in needed]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        step = max(1, _BLOCK // max(1, row))
        for at in range(low, high, step):
            block = _block_box(stored.box, at, min(at + step, high))
            rows = np.empty(block.extent, np.float32)
            self._fill(stored.path, stored.start + at * row, rows.reshape(-1).data.cast("B"))
            for box, values, overlap in needed:
                common = overlap.overlap(block)
                if common is not None:
                    values[common.relative_to(box).slices()] = rows[common.relative_to(block).slices()]

    def _view(self, stored: Stored) -> FloatArray:
        """Return a region of a part in memory, without a copy."""
        values = np.frombuffer(self.kept[stored.path], np.float32, stored.box.size, stored.start)
        return values.reshape(stored.box.extent)

    def _fill(self, path: str, start: int, target: memoryview) -> None:
        held = self.kept.get(path)
        if held is None:
            read_object_into(self.store, path, start, target)
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
    targets: Sequence[tuple[TensorRegion, FloatArray]]
    jobs: Sequence[Future[None]]

    def result(self) -> Sequence[tuple[TensorRegion, FloatArray]]:
        for job in self.jobs:
            job.result()
        return self.targets


def open_contents(
    store: Store,
    manifest: Manifest,
    kept: Mapping[str, memoryview] = MappingProxyType({}),
    needed: Sequence[TensorRegion] = (),
) -> Contents:
    """Read the headers of the parts.

    Where the parts in memory hold all that is needed, as after a restart on the same mesh, only theirs are read:
    hundreds of processes then need not read each other's headers.

    Args:
        store: The folder of checkpoints.
        manifest: Of the checkpoint.
        kept: Parts that are in memory, by path.
        needed: The regions that this process needs; none given: all.

    Raises:
        StorageError: A part cannot be read, or its header is not of this trainer.
    """
    if needed:
        here = [part for part in manifest.parts if f"{manifest.folder}/{part.name}" in kept]
        contents = _contents(store, manifest.folder, here, kept)
        if len(here) == len(manifest.parts) or _holds(contents.tensors, needed):
            return contents
    return _contents(store, manifest.folder, manifest.parts, kept)


def _contents(store: Store, folder: str, parts: Sequence[Part], kept: Mapping[str, memoryview]) -> Contents:
    found: dict[str, list[Stored]] = defaultdict(list)
    shapes: dict[str, tuple[int, ...]] = {}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="headers") as pool:
        for part, entries in zip(parts, pool.map(partial(_entries, store, folder, kept), parts), strict=True):
            for piece, start in entries:
                if shapes.setdefault(piece.name, piece.shape) != piece.shape:
                    raise StorageError(f"{store.uri}: {part.name} has another shape of {piece.name} than other parts")
                found[piece.name].append(Stored(piece.box, f"{folder}/{part.name}", start))
    tensors = {name: Tensor(shapes[name], tuple(stored)) for name, stored in found.items()}
    return Contents(store, MappingProxyType(tensors), kept)


def _holds(tensors: Mapping[str, Tensor], needed: Sequence[TensorRegion]) -> bool:
    """Whether every value of the pieces is there. Each value of a checkpoint is stored once."""
    for piece in needed:
        tensor = tensors.get(piece.name)
        if tensor is None or tensor.shape != piece.shape:
            return False
        overlaps = (piece.box.overlap(stored.box) for stored in tensor.stored)
        if sum(overlap.size for overlap in overlaps if overlap is not None) != piece.box.size:
            return False
    return True


def _entries(store: Store, folder: str, kept: Mapping[str, memoryview], part: Part) -> list[tuple[TensorRegion, int]]:
    path = f"{folder}/{part.name}"
    held = kept.get(path)
    if held is not None:
        head = held[: part.header]
    else:
        head = memoryview(bytearray(part.header))
        store.read_into(path, 0, head)
    try:
        return [(entry.piece, entry.start) for entry in parse_header(head)]
    except CorruptCheckpoint as error:
        raise StorageError(f"{store.uri}/{path}: {error}") from error


def _is_run(needed: _Overlap, stored: Box) -> bool:
    """Whether the overlap is one stretch of bytes in the file and in the target: all of every row of both."""
    return needed.overlap.extent[1:] == needed.box.extent[1:] == stored.extent[1:]


def _bytes(pieces: Sequence[TensorRegion]) -> int:
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
