"""Reads any regions of a checkpoint's tensors, whoever wrote them in whatever pieces: only the bytes that are needed.

Regions are read by rows of the pieces that were written, several tensors at once; a tensor's regions for all devices of
a process are cut from one reading.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType

import numpy as np

from trainer.checkpoint.layout import Broken, Manifest, Part, part_path
from trainer.checkpoint.snapshot import read_header
from trainer.checkpoint.store import Store
from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.box import Box, Piece

_READERS = 8  # tensors that are read at once
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
    """What a checkpoint holds, by tensor name."""

    store: Store
    tensors: Mapping[str, Tensor]

    def assemble(self, wanted: Mapping[str, Sequence[Piece]]) -> Iterator[tuple[Piece, FloatArray]]:
        """The values of each wanted piece. wanted: by the name of the tensor to take the values from.

        Raises StorageError for a tensor or a region that is not there, or cannot be read.
        """
        with ThreadPoolExecutor(_READERS, thread_name_prefix="restore") as pool:
            jobs = iter(wanted.items())
            begun: deque[Future[list[tuple[Piece, FloatArray]]]] = deque(
                pool.submit(self._read, name, pieces) for name, pieces in islice(jobs, _READERS + 1)
            )
            try:
                while begun:
                    yield from begun.popleft().result()
                    begun.extend(pool.submit(self._read, name, pieces) for name, pieces in islice(jobs, 1))
            finally:
                for future in begun:
                    future.cancel()

    def whole(self, name: str) -> FloatArray:
        """All values of a tensor. Raises StorageError."""
        tensor = self.tensors.get(name)
        shape = tensor.shape if tensor is not None else ()
        return self._read(name, [Piece(name, shape, Box.whole(shape))])[0][1]

    def _read(self, name: str, pieces: Sequence[Piece]) -> list[tuple[Piece, FloatArray]]:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise StorageError(f"{self.store.uri}: the checkpoint has no tensor {name}")
        targets = [(piece.box, np.empty(piece.box.extent, np.float32)) for piece in pieces]
        filled = [0] * len(targets)
        for stored in tensor.stored:
            for index, (box, _) in enumerate(targets):
                overlap = box.overlap(stored.box)
                filled[index] += overlap.size if overlap is not None else 0
            _read_stored(self.store, stored, targets)
        for (box, _), count in zip(targets, filled, strict=True):
            if count != box.size:
                known = f"{count:,} of {box.size:,} values at {box.offset}"
                raise StorageError(f"{self.store.uri}: of {name} the checkpoint has {known}")
        return [(piece, values) for piece, (_, values) in zip(pieces, targets, strict=True)]


def open_contents(store: Store, manifest: Manifest) -> Contents:
    """Read the headers of all parts. Raises StorageError, also for a header that is not ours."""
    found: dict[str, list[Stored]] = defaultdict(list)
    shapes: dict[str, tuple[int, ...]] = {}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="headers") as pool:
        for part, entries in zip(
            manifest.parts,
            pool.map(partial(_entries, store, manifest.step), manifest.parts),
            strict=True,
        ):
            for piece, start in entries:
                if shapes.setdefault(piece.name, piece.shape) != piece.shape:
                    raise StorageError(f"{store.uri}: {part.name} has another shape of {piece.name} than other parts")
                found[piece.name].append(Stored(piece.box, part_path(manifest.step, part.name), start))
    tensors = {name: Tensor(shapes[name], tuple(stored)) for name, stored in found.items()}
    return Contents(store, MappingProxyType(tensors))


def _entries(store: Store, step: int, part: Part) -> list[tuple[Piece, int]]:
    head = bytearray(part.header)
    store.read_into(part_path(step, part.name), 0, memoryview(head))
    try:
        return [(entry.piece, entry.start) for entry in read_header(head)]
    except Broken as error:
        raise StorageError(f"{store.uri}/{part_path(step, part.name)}: {error}") from error


def _read_stored(store: Store, stored: Stored, targets: Sequence[tuple[Box, FloatArray]]) -> None:
    """Copy what the targets need of one written region into them."""
    needed = [(box, values, overlap) for box, values in targets if (overlap := box.overlap(stored.box)) is not None]
    if not needed:
        return
    if len(needed) == 1 and _is_run(needed[0][2], needed[0][0], stored.box):
        box, values, overlap = needed[0]
        row = _row_bytes(stored.box)
        target = values.reshape(-1).data.cast("B")
        low, high = _rows(overlap.within(box))
        start = stored.start + _rows(overlap.within(stored.box))[0] * row
        store.read_into(stored.path, start, target[low * row : high * row])
        return
    bounds = [_rows(overlap.within(stored.box)) for _, _, overlap in needed]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    row = _row_bytes(stored.box)
    step = max(1, _BLOCK // max(1, row))
    for at in range(low, high, step):
        block = _block_box(stored.box, at, min(at + step, high))
        rows = np.empty(block.extent, np.float32)
        store.read_into(stored.path, stored.start + at * row, rows.reshape(-1).data.cast("B"))
        for box, values, overlap in needed:
            common = overlap.overlap(block)
            if common is not None:
                values[common.within(box).slices()] = rows[common.within(block).slices()]


def _is_run(overlap: Box, target: Box, stored: Box) -> bool:
    """Whether the overlap is one stretch of bytes in the file and in the target: all of every row of both."""
    return overlap.extent[1:] == target.extent[1:] == stored.extent[1:]


def _rows(inner: Box) -> tuple[int, int]:
    """First row, and the one behind the last; a scalar is one row."""
    return (inner.offset[0], inner.end[0]) if inner.extent else (0, 1)


def _row_bytes(box: Box) -> int:
    return 4 * Box(box.offset[1:], box.extent[1:]).size


def _block_box(stored: Box, low: int, high: int) -> Box:
    if not stored.extent:
        return stored
    return Box((stored.offset[0] + low, *stored.offset[1:]), (high - low, *stored.extent[1:]))
