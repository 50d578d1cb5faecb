"""Marks of the tokens that are trained on: one bit of each token, in files and in rows.

A token that is not trained on, such as one of a question in chat data, is stored as its complement, -1 - token, in a
signed type. The other tokens are marked: the loss is the mean over them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.engine import TokenArray

_NARROW = 1 << 14  # tokens that int16 holds together with their complements and the bit of a document's start


def choose_marked_dtype(vocab: int) -> str:
    """Return the name of the narrowest type that holds every token, its complement, and a document's start."""
    return "int16" if vocab <= _NARROW else "int32"


def mark_tokens(tokens: TokenArray, trained: npt.NDArray[np.bool_], vocab: int) -> TokenArray:
    """Return the tokens as they are stored.

    Args:
        tokens: One-dimensional.
        trained: Which of them are trained on, same shape.
        vocab: Every token is below it.
    """
    signed = tokens.astype(choose_marked_dtype(vocab))
    return np.where(trained, signed, ~signed)


def remove_marks(rows: TokenArray) -> TokenArray:
    """Return the tokens alone."""
    return np.where(rows < 0, ~rows, rows)


def count_marked(rows: TokenArray) -> int:
    """Return how many predicted tokens of the rows are trained on."""
    return int(np.count_nonzero(rows[:, 1:] >= 0))
