"""The first documents of a preparation as text, with the tokens that are trained on between marks.

Where nothing is prepared, more rows are read than are shown, so that bad ones and other faults are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from trainer.data.documents import TextChunk
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.data.prepare import PrepareJob, open_job_documents, refuse_empty, refuse_untrained
from trainer.data.tokens.document_starts import remove_stored_starts
from trainer.data.tokens.encoding import encode_batch
from trainer.data.tokens.marks import remove_marks
from trainer.data.tokens.tokenizers import TokenizerSpec
from trainer.errors import DataError

FIRST, LAST = "⟦", "⟧"
_LIMITS = Limits(memory=4 << 30, seconds=120.0)
_MOST_TOKENS = 2000
_MOST_DOCUMENTS, _MOST_BYTES = 1000, 64 << 20  # that are read behind the examples
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), 127, *range(128, 160)] if chr(code) not in "\n\t"}

Runs: TypeAlias = list[tuple[str, bool]]


def show_examples(job: PrepareJob, count: int, report: Callable[[str], None]) -> None:
    """Print the first documents; without a destination also what is wrong with the next ones.

    Args:
        job: Its destination is empty where nothing is prepared.
        count: Of the examples.
        report: Prints a text for the user.

    Raises:
        DataError: A document cannot be read or encoded, or there is nothing to train on.
        StorageError: The bucket cannot be read.
    """
    documents = open_job_documents(job, (lambda _: None) if job.destination else report)
    seen = _Seen()
    texts = seen.watch(documents.read())
    for example in format_examples(job.tokens, texts, count):
        report(example)
    if job.destination:
        return  # the preparation reports the rest
    is_complete = seen.read_on(texts)
    if not seen.documents and not seen.size:
        raise refuse_empty(job, documents)
    for note in documents.list_notes():
        report(f"note: {note}")
    if not is_complete:
        report(f"note: only the beginning was read, {seen.documents:,} documents")
    elif job.chat is not None and not seen.has_replies:
        raise refuse_untrained(job)


@dataclass(slots=True)
class _Seen:
    """Counts of the texts that were read."""

    documents: int = 0
    size: int = 0
    has_replies: bool = False

    def watch(self, texts: Iterable[TextChunk]) -> Iterator[TextChunk]:
        for text in texts:
            self.documents += text.is_last
            self.size += len(text.data)
            self.has_replies |= bool(text.replies)
            yield text

    def read_on(self, texts: Iterator[TextChunk]) -> bool:
        """Read some more texts, and return whether these were all."""
        documents, size = self.documents + _MOST_DOCUMENTS, self.size + _MOST_BYTES
        return all(self.documents < documents and self.size < size for _ in texts)


def format_examples(tokens: TokenizerSpec, documents: Iterable[TextChunk], count: int) -> Iterator[str]:
    """Yield each of the first documents, for people.

    Raises:
        DataError: A document cannot be read or encoded.
    """
    process = LimitedProcess(open_example_encoder, tokens, _LIMITS)
    try:
        for number, text in enumerate(islice(documents, count), start=1):
            runs, size, trained = process.ask(astuple(text))
            yield _format(number, text, runs, size, trained)
    except LimitedProcessError as error:
        raise DataError(f"tokenizer={tokens.place}: a text cannot be encoded: {error}") from error
    finally:
        process.end()


def open_example_encoder(tokens: TokenizerSpec) -> Callable[[tuple[Any, ...]], tuple[Runs, int, int]]:
    """Return the function that encodes a document: its text in runs, each trained on or not, and two numbers of tokens.

    The text is that of the tokens, so it shows what a model gets.
    """
    encoder = tokens.open_encoder()

    def encode(values: tuple[Any, ...]) -> tuple[Runs, int, int]:
        stored = encode_batch(encoder, tokens, [TextChunk(*values)]).tokens
        if tokens.marked:
            stored = remove_stored_starts(stored)
        trained = stored >= 0
        ids = remove_marks(stored)[:_MOST_TOKENS].tolist()
        changes = np.flatnonzero(np.diff(trained[: len(ids)])) + 1
        runs: Runs = []
        before = ""
        for first, last in pairwise([0, *changes.tolist(), len(ids)]):
            through = encoder.decode(ids[:last])  # a run alone may lose a space, or half of a character
            runs.append((through[len(before) :], bool(trained[first])))
            before = through
        return runs, len(stored), int(trained.sum())

    return encode


def _format(number: int, text: TextChunk, runs: Runs, size: int, trained: int) -> str:
    """Return a document with its heading; characters that could steer a terminal are named."""
    body = "".join(
        f"{FIRST}{part}{LAST}" if is_trained else part
        for part, is_trained in ((part.translate(_CONTROL), is_trained) for part, is_trained in runs)
    )
    marked = f"{trained:,} of them trained on, between {FIRST} and {LAST}" if trained else "none of them trained on"
    notes = [f"{size:,} tokens", marked]
    if text.literal:
        notes.append("control tokens in its messages are text")
    if size > _MOST_TOKENS or not text.is_last:
        notes.append(f"the first {_MOST_TOKENS:,} shown" if size > _MOST_TOKENS else "its beginning shown")
    return f"--- example {number}: {'; '.join(notes)}\n{body}\n"
