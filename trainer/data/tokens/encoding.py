"""Encoding of batches of text into tokens, in several processes, in the order of the input."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any

import numpy as np

from trainer.data.documents import TextChunk
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.data.tokens.document_starts import store_start
from trainer.data.tokens.encoders import Encoder
from trainer.data.tokens.marks import mark_tokens
from trainer.data.tokens.tokenizers import BYTES, TokenizerSpec
from trainer.engine import TokenArray
from trainer.errors import DataError, TrainerError

TextBatch = Sequence[TextChunk]
_LIMITS = Limits(memory=4 << 30, seconds=120.0)  # seconds: at the start, and for each MiB of text
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The tokens of a batch.

    Attributes:
        tokens: One-dimensional array.
        documents: Number of documents that end in the batch.
    """

    tokens: TokenArray
    documents: int


def encode_batches(tokens: TokenizerSpec, batches: Iterable[TextBatch], workers: int) -> Iterator[EncodedBatch]:
    """Yield one result per batch, the same for any number of workers.

    Args:
        tokens: The tokenizer.
        batches: The texts.
        workers: Number of processes; with 1, bytes are encoded in this process.

    Raises:
        DataError: The tokenizer cannot encode a text within the limits.
        TrainerError: A worker process ended.
    """
    if workers == 1 and tokens.name == BYTES:
        encoder = tokens.open_encoder()
        yield from (encode_batch(encoder, tokens, batch) for batch in batches)
        return
    team = [_Worker(tokens) for _ in range(workers)]
    try:
        rest = iter(batches)
        busy = deque[_Worker]()
        for worker, batch in zip(team, islice(rest, workers), strict=False):
            worker.send(batch)
            busy.append(worker)
        while busy:
            following = next(rest, None)  # read while they work
            worker = busy.popleft()
            result = worker.receive()
            if following is not None:
                worker.send(following)
                busy.append(worker)
            yield result
    finally:
        for worker in team:
            worker.end()


def encode_batch(encoder: Encoder, tokens: TokenizerSpec, batch: TextBatch) -> EncodedBatch:
    """Concatenate the tokens of the texts, each document with the tokens that begin it and the one that ends it."""
    if tokens.marked:
        return _encode_chats(encoder, tokens, batch)
    begin, end = (np.array(ids, dtype=tokens.dtype) for ids in (tokens.begin, [tokens.eod]))
    pieces: list[TokenArray] = []
    for text, found in zip(batch, encoder.encode([text.data for text in batch]), strict=True):
        if text.is_first:
            pieces.append(begin)
        pieces.append(found)
        if text.is_last:
            pieces.append(end)
    return EncodedBatch(np.concatenate(pieces).astype(tokens.dtype, copy=False), sum(text.is_last for text in batch))


def _encode_chats(encoder: Encoder, tokens: TokenizerSpec, batch: TextBatch) -> EncodedBatch:
    """Concatenate the marked tokens of conversations, each with its start.

    A text that ends with the end-of-document token, or with that and white space, gets no other. A text without a
    template begins as other documents do.
    """
    pieces: list[TokenArray] = []
    for chat in batch:
        text = chat.data.decode()
        found, trained = encoder.encode_reply(text, chat.replies, chat.literal)
        if chat.trains_end and tokens.begin and found[: len(tokens.begin)].tolist() != [*tokens.begin]:
            found = np.concatenate((np.array(tokens.begin, found.dtype), found))
            trained = np.concatenate((np.zeros(len(tokens.begin), np.bool_), trained))
        space = len(text.encode()) - len(text.rstrip().encode())
        if tokens.eod not in found[-1 - space :]:
            found = np.append(found, np.array([tokens.eod], found.dtype))
            trained = np.append(trained, chat.trains_end)
        pieces.append(store_start(mark_tokens(found, trained, tokens.vocab)))
    return EncodedBatch(np.concatenate(pieces), len(batch))


def open_batch_encoder(tokens: TokenizerSpec) -> Callable[[Sequence[tuple[Any, ...]]], EncodedBatch]:
    """Return the function that encodes a batch in the process that calls it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each: the processes are the parallelism
    encoder = tokens.open_encoder()
    return lambda batch: encode_batch(encoder, tokens, [TextChunk(*values) for values in batch])


class _Worker:
    """A process that encodes batches; a tokenizer.json may come from anyone."""

    def __init__(self, tokens: TokenizerSpec) -> None:
        self._place = tokens.place
        self._process = LimitedProcess(open_batch_encoder, tokens, _LIMITS)

    def send(self, batch: TextBatch) -> None:
        size = sum(len(text.data) for text in batch)
        try:
            self._process.send([astuple(text) for text in batch], _LIMITS.seconds * (1 + size / _BATCH_BYTES))
        except LimitedProcessError as error:
            raise self._explain(error) from error

    def receive(self) -> EncodedBatch:
        try:
            result: EncodedBatch = self._process.receive()
        except LimitedProcessError as error:
            raise self._explain(error) from error
        return result

    def end(self) -> None:
        self._process.end()

    def _explain(self, error: LimitedProcessError) -> TrainerError:
        if error.by_limit:
            return DataError(f"tokenizer={self._place}: a text cannot be encoded: {error}")
        return TrainerError(
            f"an encoding process ended ({error}): if memory ran out, lower workers=; "
            "run the same command again to resume after the last complete shard"
        )
