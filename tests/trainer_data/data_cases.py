"""Helpers that the tests of the data share."""

from __future__ import annotations

import numpy as np

from trainer.config import DataConfig
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.documents import open_documents


def opened(source: object, tokenizer: str = "auto", notes: list[str] | None = None) -> Corpus:
    return open_corpus(DataConfig(source=str(source), tokenizer=tokenizer), ([] if notes is None else notes).append)


def tokens_of(corpus: Corpus) -> list[int]:
    """Return all tokens of the corpus."""
    found: list[int] = corpus.read(np.array([0]), corpus.total_tokens)[0].tolist()
    return found


def texts(source: object, column: str = "text") -> list[bytes]:
    """Return the complete documents that `prepare` reads."""
    found, begun = list[bytes](), b""
    reader = open_documents(str(source), column)
    for part in reader.read():
        begun += part.data
        if part.is_last:
            found.append(begun)
            begun = b""
    assert begun == b""
    assert reader.size is None or reader.bytes_read == reader.size
    return found
