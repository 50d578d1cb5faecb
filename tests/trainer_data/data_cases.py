"""Helpers that the tests of the data share."""

from __future__ import annotations

import numpy as np

from trainer.config import DataConfig
from trainer.data.corpus import Corpus, open_corpus


def opened(source: object, tokenizer: str = "auto", notes: list[str] | None = None) -> Corpus:
    return open_corpus(DataConfig(source=str(source), tokenizer=tokenizer), ([] if notes is None else notes).append)


def tokens_of(corpus: Corpus) -> list[int]:
    """Return all tokens of the corpus."""
    found: list[int] = corpus.read(np.array([0]), corpus.total_tokens)[0].tolist()
    return found
