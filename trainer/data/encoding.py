"""Encoding of batches of text into tokens, in several processes, in the order of the input."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from trainer.data.document_starts import store_start
from trainer.data.documents import TextChunk
from trainer.data.marks import mark_tokens
from trainer.data.tokenizers import Encoder, TokenizerSpec
from trainer.engine import TokenArray
from trainer.errors import TrainerError

TextBatch = Sequence[TextChunk]


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
        workers: Number of processes; 1 encodes in this process.

    Raises:
        TrainerError: A worker process ended.
    """
    if workers == 1:
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
        found, trained = encoder.encode_reply(text, chat.replies)
        if chat.trains_end and tokens.begin and found[: len(tokens.begin)].tolist() != [*tokens.begin]:
            found = np.concatenate((np.array(tokens.begin, found.dtype), found))
            trained = np.concatenate((np.zeros(len(tokens.begin), np.bool_), trained))
        space = len(text.encode()) - len(text.rstrip().encode())
        if tokens.eod not in found[-1 - space :]:
            found = np.append(found, np.array([tokens.eod], found.dtype))
            trained = np.append(trained, chat.trains_end)
        pieces.append(store_start(mark_tokens(found, trained, tokens.vocab)))
    return EncodedBatch(np.concatenate(pieces), len(batch))


class _Worker:
    """A process with a pipe; at most one batch is in flight, because two could block each other in full pipes."""

    def __init__(self, tokens: TokenizerSpec) -> None:
        # spawn: a fork would copy the locks of other threads in their present state.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(tokens, other), daemon=True)
        self._process.start()
        other.close()

    def send(self, batch: TextBatch) -> None:
        try:
            self._pipe.send([astuple(text) for text in batch])
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> EncodedBatch:
        try:
            result: Any = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if isinstance(result, str):
            raise TrainerError(f"the text cannot be encoded: {result}")
        return result  # type: ignore[no-any-return]  # what _work sends

    def end(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ended(self) -> TrainerError:
        self._process.join(5)
        return TrainerError(
            f"an encoding process ended (status {self._process.exitcode}): if memory ran out, lower workers=; "
            "run the same command again to resume after the last complete shard"
        )


def _work(tokens: TokenizerSpec, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process; its end closes the pipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each: the processes are the parallelism
    encoder = tokens.open_encoder()
    while True:
        try:
            batch = [TextChunk(*values) for values in pipe.recv()]
        except (EOFError, OSError):
            return
        try:
            pipe.send(encode_batch(encoder, tokens, batch))
        except BrokenPipeError:
            return
        except Exception as error:  # reported by the parent process
            pipe.send(f"{type(error).__name__}: {error}")
