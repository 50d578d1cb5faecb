"""The order of the data: row i of step s is a pure function of (seed, s, i), so a position is one integer.

Every epoch visits each window once, in its own order. Nothing is stored and nothing depends on the number of hosts,
so a run can resume at any step on any number of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainer.errors import DataError

_ROUNDS = 4


class Order(Protocol):
    """Which positions of a corpus each step reads."""

    @property
    def batch(self) -> int:
        """Rows of a step over all ranks."""
        ...

    @property
    def seq_len(self) -> int:
        """Predicted tokens of a row."""
        ...

    def positions(self, step: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return where rows first ... first + count - 1 of the step begin; shape (count,)."""
        ...

    def count_rows(self, rows: int) -> tuple[int, ...]:
        """Return how many of the first rows of the run are from each source."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """Which window of the corpus each row reads.

    A window is seq_len + 1 tokens, since each token predicts the next; windows begin every seq_len tokens.

    Attributes:
        total: Tokens of the corpus.
        batch: Rows of a step over all ranks.
        seq_len: Predicted tokens of a row.
        seed: Of the order.
    """

    total: int
    batch: int
    seq_len: int
    seed: int

    def __post_init__(self) -> None:
        if self.windows < 1:
            raise DataError(
                f"the corpus has {self.total} tokens, one row needs {self.seq_len + 1}: add data or lower seq_len"
            )

    @property
    def windows(self) -> int:
        return (self.total - 1) // self.seq_len

    def positions(self, step: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return the first token of rows first ... first + count - 1 of the step; shape (count,)."""
        return self.find_windows(
            np.uint64(step) * np.uint64(self.batch) + np.arange(first, first + count, dtype=np.uint64)
        )

    def count_rows(self, rows: int) -> tuple[int, ...]:
        """Return how many of the first rows of the run are from each source: all, of the only one."""
        return (rows,)

    def find_windows(self, index: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the first token of the rows with these numbers, counted from the first row of the first epoch."""
        windows = np.uint64(self.windows)
        window = permute_windows(index % windows, index // windows, self.windows, self.seed)
        return window.astype(np.int64) * self.seq_len


def permute_windows(
    values: npt.NDArray[np.uint64], epochs: npt.NDArray[np.uint64], size: int, seed: int
) -> npt.NDArray[np.uint64]:
    """Map each value below `size` to another below `size`, one to one within an epoch.

    A Feistel network over the next even power of two; a result outside the range is mapped again until it is inside
    (cycle walking), which keeps it one to one.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = [hash_values(epochs * np.uint64(_ROUNDS) + np.uint64(turn), seed) for turn in range(_ROUNDS)]
    result = values.copy()
    todo = np.ones(result.shape, dtype=bool)
    while todo.any():
        left, right = result[todo] >> half, result[todo] & mask
        for key in keys:
            left, right = right, left ^ (hash_values(right + key[todo], 0) & mask)
        result[todo] = (left << half) | right
        todo = result >= np.uint64(size)
    return result


def hash_values(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return a well-spread 64-bit hash of each value: SplitMix64's output function (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
