"""Starts of documents: one bit of each token in rows, and in the shards of chat data.

With `data.document_mask` rows are int32, and the bit DOCUMENT_START of a document's first token differs from its sign:
it is set in a token, and cleared in the complement of one (trainer/data/tokens/marks.py). Shards of text need no such
bit, because a document follows each end-of-document token; files of plain text are one document each. In chat data
that token may also end a reply. So its shards have the bit, the highest one below the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.data.extents import Span
from trainer.engine import DOCUMENT_START, TokenArray

Starts: TypeAlias = npt.NDArray[np.bool_]
StartFinder: TypeAlias = Callable[[TokenArray, Sequence[Span]], Starts]
"""`find(rows, spans)` returns which tokens of the rows begin a document; the rows were read from the spans."""


def find_starts_after_end(end: int, rows: TokenArray, _spans: Sequence[Span]) -> Starts:
    """Return which tokens follow the token that ends each document."""
    starts = np.zeros(rows.shape, np.bool_)
    starts[:, 1:] = rows[:, :-1] == end
    return starts


def find_starts_of_pieces(rows: TokenArray, spans: Sequence[Span]) -> Starts:
    """Return which tokens begin a file."""
    starts = np.zeros(rows.shape, np.bool_)
    for span in spans:
        starts[span.row, span.column] = span.offset == 0
    return starts


def mark_starts(rows: TokenArray, starts: Starts) -> TokenArray:
    """Return the rows as int32, with the starts of documents in them."""
    return np.where(starts, rows.astype(np.int32) ^ DOCUMENT_START, rows)


def store_start(marked: TokenArray) -> TokenArray:
    """Return the marked tokens of a document as shards store them, with the start of the first one."""
    stored = marked.copy()
    stored[0] ^= _stored_bit(marked)
    return stored


def remove_stored_starts(rows: TokenArray) -> TokenArray:
    """Return marked rows of shards without the starts of documents."""
    return split_stored_starts(rows)[0]


def split_stored_starts(rows: TokenArray) -> tuple[TokenArray, Starts]:
    """Return marked rows of shards without the starts of documents, and the starts."""
    bit = _stored_bit(rows)
    starts: Starts = ((rows & bit) != 0) != (rows < 0)
    return np.where(starts, rows ^ bit, rows), starts


def _stored_bit(tokens: TokenArray) -> int:
    """Return the highest bit below the sign."""
    return 1 << (8 * tokens.dtype.itemsize - 2)
