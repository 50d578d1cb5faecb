"""Many pieces (files, objects, shards) as one long row of items (bytes or tokens)."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Piece:
    """name: relative to the corpus's root, with slashes. size: items in it."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` items of a piece from `offset` on, which belong at `at` in row `row`."""

    row: int
    at: int
    piece: int
    offset: int
    count: int


class Extents:
    """Where an item of the whole lies in its pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._starts = [0, *accumulate(piece.size for piece in pieces)]

    @property
    def total(self) -> int:
        return self._starts[-1]

    def locate(self, position: int, length: int) -> Iterator[tuple[int, int, int]]:
        """(piece, offset in it, items) for each stretch of the window, in order. Empty pieces are skipped.

        Raises IndexError when the window reaches beyond the last item.
        """
        if position < 0 or position + length > self.total:
            raise IndexError(f"items {position} to {position + length} of {self.total}")
        index = bisect.bisect_right(self._starts, position) - 1
        while length > 0:
            offset = position - self._starts[index]
            count = min(length, self._starts[index + 1] - position)
            if count > 0:
                yield index, offset, count
            position, length, index = position + count, length - count, index + 1

    def stretches(self, positions: npt.NDArray[np.int64], length: int) -> list[Stretch]:
        """All stretches of the windows that begin at the positions."""
        found: list[Stretch] = []
        for row, position in enumerate(positions.tolist()):
            at = 0
            for piece, offset, count in self.locate(position, length):
                found.append(Stretch(row, at, piece, offset, count))
                at += count
        return found


def fingerprint(pieces: Sequence[Piece]) -> str:
    """Changes when a name, a size or the order of the pieces changes."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(f"{piece.name}\0{piece.size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]
