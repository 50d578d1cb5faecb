"""The rows of an evaluation: the end of the corpus, which is not trained on, or another corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainer.config import Config
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.tokens.marks import count_marked
from trainer.engine import TokenArray
from trainer.errors import DataError
from trainer.shape.mesh import RowShare


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRows:
    """The same rows at every evaluation, spread evenly over the text.

    Attributes:
        corpus: What is read.
        first: Where the text begins, in tokens.
        windows: Rows of the text.
        batch: Rows of a batch over all ranks.
        seq_len: Predicted tokens of a row.
        batches: Batches of an evaluation.
        tokens: Predicted tokens of an evaluation that its loss is the mean of.
        weight: Of the loss on these rows among those of a mixture's sources.
    """

    corpus: Corpus
    first: int
    windows: int
    batch: int
    seq_len: int
    batches: int
    tokens: int
    weight: int = 1

    @property
    def tokens_of_batch(self) -> int:
        """Predicted tokens of a batch, marked or not."""
        return self.batch * self.seq_len

    def read(self, batch: int, share: RowShare) -> TokenArray:
        """Return this process's rows of a batch, shape (rows, seq_len + 1).

        Raises:
            DataError: They cannot be read.
            StorageError: The bucket cannot be read.
        """
        first, count = share.rows(self.batch)
        index = np.arange(count, dtype=np.int64) + batch * self.batch + first
        windows = index * self.windows // (self.batches * self.batch)
        return self.corpus.read(self.first + windows * self.seq_len, self.seq_len + 1)


def hold_out_rows(config: Config, corpus: Corpus, report: Callable[[str], None]) -> tuple[int, HeldOutRows | None]:
    """Return how many tokens of the corpus are trained on, and the rows of an evaluation; None without evaluations.

    Args:
        config: The settings.
        corpus: What is trained on.
        report: Prints one line for the user.

    Raises:
        DataError: There is not enough text for one batch, or it is of another vocabulary.
        StorageError: The bucket cannot be read.
    """
    settings, length = config.eval, config.seq_len
    if not settings.every:
        return corpus.total_tokens, None
    if settings.source:
        other = open_corpus(replace(config.data, source=settings.source, weights=""), report)
        if other.vocab > corpus.vocab:
            raise DataError(
                f"eval.source={settings.source} has tokens up to {other.vocab - 1}, the data up to {corpus.vocab - 1}: "
                "prepare it with the tokenizer of the data"
            )
        return corpus.total_tokens, _choose_rows(config, other, 0)
    trained = int((corpus.total_tokens - 1) * (1 - settings.share)) // length
    return trained * length + 1, _choose_rows(config, corpus, trained * length)


def _choose_rows(config: Config, corpus: Corpus, first: int) -> HeldOutRows:
    windows = (corpus.total_tokens - 1 - first) // config.seq_len
    batches = min(config.eval.batches, windows // config.batch)
    if not batches:
        tokens = config.batch * config.seq_len
        raise DataError(
            f"an evaluation of {corpus.source} has {max(0, windows) * config.seq_len:,} tokens, one batch needs "
            f"{tokens:,}: raise eval.share, or name other data as eval.source"
        )
    rows = HeldOutRows(
        corpus=corpus,
        first=first,
        windows=windows,
        batch=config.batch,
        seq_len=config.seq_len,
        batches=batches,
        tokens=batches * config.batch * config.seq_len,
    )
    return _count_marked_tokens(rows) if corpus.marked else rows


def _count_marked_tokens(rows: HeldOutRows) -> HeldOutRows:
    """Count over the rows of all ranks: each knows the divisor of the sum of losses, which never changes."""
    every = RowShare(first=0, count=1, total=1)
    marked = sum(count_marked(rows.read(batch, every)) for batch in range(rows.batches))
    if not marked:
        raise DataError(f"no token of the evaluation's {rows.tokens:,} is marked: raise eval.share or eval.batches")
    return replace(rows, tokens=marked)
