"""Many pieces (files, objects, shards) as one long sequence of items (bytes or tokens)."""

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
    """A file, object or shard of a corpus.

    Attributes:
        name: Relative to the corpus's root, with slashes.
        size: Number of items.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of items within one piece, and where it goes in the rows.

    Attributes:
        row: Index of the row.
        column: Index in the row of the first item.
        piece: Index of the piece.
        offset: Index in the piece of the first item.
        count: Number of items.
    """

    row: int
    column: int
    piece: int
    offset: int
    count: int


class Extents:
    """Maps positions in the whole sequence to pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._starts = [0, *accumulate(piece.size for piece in pieces)]

    @property
    def total_items(self) -> int:
        return self._starts[-1]

    def locate(self, position: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield (piece, offset in it, items) for each part of a window, in order; empty pieces are skipped.

        Raises:
            IndexError: The window reaches beyond the last item.
        """
        if position < 0 or position + length > self.total_items:
            raise IndexError(f"items {position} to {position + length} of {self.total_items}")
        index = bisect.bisect_right(self._starts, position) - 1
        while length > 0:
            offset = position - self._starts[index]
            count = min(length, self._starts[index + 1] - position)
            if count > 0:
                yield index, offset, count
            position, length, index = position + count, length - count, index + 1

    def list_spans(self, positions: npt.NDArray[np.int64], length: int) -> list[Span]:
        """List all spans of the windows of `length` items that begin at the positions."""
        found: list[Span] = []
        for row, position in enumerate(positions.tolist()):
            at = 0
            for piece, offset, count in self.locate(position, length):
                found.append(Span(row=row, column=at, piece=piece, offset=offset, count=count))
                at += count
        return found


def fingerprint_pieces(pieces: Sequence[Piece]) -> str:
    """Return a short hash that changes with a name, a size or the order of the pieces, not with their content."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(f"{piece.name}\0{piece.size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]
