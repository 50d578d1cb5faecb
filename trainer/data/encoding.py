"""Batches of text to tokens, in several processes, in the order in which they came."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from trainer.data.documents import Text
from trainer.data.tokenizers import Encoder, Tokens
from trainer.engine import TokenArray
from trainer.errors import TrainerError

Batch = Sequence[Text]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch as tokens. documents: how many end in it."""

    tokens: TokenArray
    documents: int


def encode_all(tokens: Tokens, batches: Iterable[Batch], workers: int) -> Iterator[Encoded]:
    """One result for each batch, the same for any number of workers. workers: processes; 1: this one.

    Raises TrainerError when one of them ends.
    """
    if workers == 1:
        encoder = tokens.open()
        yield from (encode(encoder, tokens, batch) for batch in batches)
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


def encode(encoder: Encoder, tokens: Tokens, batch: Batch) -> Encoded:
    """The texts one after the other, each document with its end."""
    end = np.array([tokens.eod], dtype=tokens.dtype)
    pieces: list[TokenArray] = []
    for text, found in zip(batch, encoder.encode([text.data for text in batch]), strict=True):
        pieces.append(found)
        if text.ends:
            pieces.append(end)
    return Encoded(np.concatenate(pieces).astype(tokens.dtype, copy=False), sum(text.ends for text in batch))


class _Worker:
    """A process with a pipe. At most one batch is under way: two could block each other in full pipes."""

    def __init__(self, tokens: Tokens) -> None:
        # spawn: a fork would copy threads' locks in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(tokens, other), daemon=True)
        self._process.start()
        other.close()

    def send(self, batch: Batch) -> None:
        try:
            self._pipe.send([(text.data, text.ends) for text in batch])
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> Encoded:
        try:
            result: Any = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if isinstance(result, str):
            raise TrainerError(f"the text cannot be turned into tokens: {result}")
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
            f"a process that makes tokens ended (status {self._process.exitcode}): if memory ran out, lower workers=; "
            "run the same command again, it goes on behind the last whole shard"
        )


def _work(tokens: Tokens, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process; its end closes the pipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each: the processes are the parallelism
    encoder = tokens.open()
    while True:
        try:
            batch = [Text(data, ends) for data, ends in pipe.recv()]
        except (EOFError, OSError):
            return
        try:
            pipe.send(encode(encoder, tokens, batch))
        except BrokenPipeError:
            return
        except Exception as error:  # told where it can be explained
            pipe.send(f"{type(error).__name__}: {error}")
