"""The order of several sources: row n of a run is from a source that is a pure function of (seed, n).

Rows are taken in blocks of 1024. The rows of a block are shuffled, by (seed, block), into slots. Slots go to the
sources evenly by their weights: among the first g slots, source 0 has floor(g * w0 / (w0 + w1 + ...)); of the slots
that are left, source 1 has its part of the rest in the same way, and so on. So the number of rows that each source has
given before row n is known from n and one block. It is the position of the source, which has its own order and its
own epochs (trainer/order.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.order import RowOrder, hash_values, permute_windows

_BLOCK = 1024
_OFFSET_BITS = 48  # of a position; the source is above them

Counts = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOrder:
    """Which window of which source each row reads.

    Attributes:
        orders: Of each source.
        weights: Of each source, whole numbers with a sum of at most 2^31.
        batch: Rows of a step over all ranks.
        seq_len: Predicted tokens of a row.
        seed: Of the order.
    """

    orders: tuple[RowOrder, ...]
    weights: tuple[int, ...]
    batch: int
    seq_len: int
    seed: int

    def positions(self, step: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return where rows first ... first + count - 1 of the step begin, as `split_position` reads it."""
        sources, numbers = self.assign_rows(step * self.batch + first, count)
        found = np.empty(count, dtype=np.int64)
        for source, order in enumerate(self.orders):
            own = sources == source
            found[own] = (source << _OFFSET_BITS) + order.find_windows(numbers[own])
        return found

    def assign_rows(self, first: int, count: int) -> tuple[npt.NDArray[np.int64], Counts]:
        """Return the source of rows first ... first + count - 1, and how many rows of that source come before each."""
        begin, end = first // _BLOCK * _BLOCK, first + count
        sources = self._choose_sources(np.arange(begin, -(-end // _BLOCK) * _BLOCK, dtype=np.uint64))[: end - begin]
        numbers = np.empty(sources.shape, dtype=np.uint64)
        for source, before in enumerate(self._count_slots(begin)):
            own = sources == source
            numbers[own] = np.arange(before, before + int(own.sum()), dtype=np.uint64)
        return sources[first - begin :], numbers[first - begin :]

    def count_rows(self, rows: int) -> tuple[int, ...]:
        """Return how many of the first rows of the run are from each source."""
        begin = rows // _BLOCK * _BLOCK
        partial = np.bincount(self.assign_rows(begin, rows - begin)[0], minlength=len(self.weights)).tolist()
        return tuple(count + more for count, more in zip(self._count_slots(begin), partial, strict=True))

    def _choose_sources(self, rows: Counts) -> npt.NDArray[np.int64]:
        blocks = rows // np.uint64(_BLOCK)
        slots = blocks * np.uint64(_BLOCK) + permute_windows(rows % np.uint64(_BLOCK), blocks, _BLOCK, self.seed)
        sources = np.full(rows.shape, len(self.weights) - 1, dtype=np.int64)
        left = np.ones(rows.shape, dtype=bool)
        rest = sum(self.weights)
        for source, weight in enumerate(self.weights[:-1]):
            before = _share(slots, weight, rest)
            own = left & (_share(slots + np.uint64(1), weight, rest) > before)
            sources[own] = source
            left &= ~own
            slots, rest = slots - before, rest - weight
        return sources

    def _count_slots(self, slots: int) -> list[int]:
        """Return how many of the first slots each source has."""
        rest, counts = sum(self.weights), list[int]()
        for weight in self.weights:
            counts.append(slots * weight // rest)
            slots, rest = slots - counts[-1], rest - weight
        return counts


def derive_seed(seed: int, source: int) -> int:
    """Return the seed of a source's own order, so that sources of one size have different orders."""
    return int(hash_values(np.array([source], dtype=np.uint64), seed)[0] >> np.uint64(1))


def split_position(positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the source of each position, and the token in it."""
    return positions >> _OFFSET_BITS, positions & ((1 << _OFFSET_BITS) - 1)


def _share(slots: Counts, weight: int, rest: int) -> Counts:
    """Return floor(slots * weight / rest), whose product would not fit into 64 bits."""
    turns, left = slots // np.uint64(rest), slots % np.uint64(rest)
    return turns * np.uint64(weight) + left * np.uint64(weight) // np.uint64(rest)
