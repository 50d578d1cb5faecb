"""Chunks of queries that attention without a fused kernel computes at a time, for the JAX engine and the advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ATTENTION_CHUNK: Final = 512
"""Least number of queries of a chunk."""

_MOST_CHUNKS = 16  # each chunk adds to the size of the program
_LEAST_DIVISOR = 64  # smaller chunks of queries fill no matrix unit


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionChunk:
    """One chunk.

    Attributes:
        first: First query.
        end: Query, and key, after the last one.
        oldest: First key.
    """

    first: int
    end: int
    oldest: int

    @property
    def scores(self) -> int:
        """Number of scores of a head."""
        return (self.end - self.first) * (self.end - self.oldest)


def choose_ring_chunk(length: int) -> int:
    """Return the number of queries that ring attention computes at a time, of a part of a row with `length` tokens."""
    found = max(size for size in range(1, min(length, ATTENTION_CHUNK) + 1) if length % size == 0)
    return found if found >= _LEAST_DIVISOR else length


def list_attention_chunks(length: int, window: int) -> tuple[AttentionChunk, ...]:
    """Return the chunks of a row.

    Args:
        length: Queries of the row.
        window: Newest keys that a query attends to; 0 for all.
    """
    size = max(ATTENTION_CHUNK, -(-length // _MOST_CHUNKS))
    near = window or length
    return tuple(
        AttentionChunk(first=first, end=min(first + size, length), oldest=max(0, first - near + 1))
        for first in range(0, length, size)
    )
