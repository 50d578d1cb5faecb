"""Loader of one process's rows by step number, which reads some steps ahead in threads."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from trainer.data.corpus import Corpus
from trainer.engine import TokenArray
from trainer.order import Order
from trainer.shape.mesh import RowShare

_MAX_READERS = 4  # steps that are read at the same time


class BatchLoader:
    """Reads the rows of any step, and reads the following steps ahead of time.

    No position is kept between calls, so any step may be requested at any time.
    """

    def __init__(self, corpus: Corpus, order: Order, share: RowShare, ahead: int) -> None:
        """Start the reader threads.

        Args:
            corpus: Where the tokens are read from.
            order: Which positions of the corpus each step uses.
            share: Which rows of each step belong to this process.
            ahead: Number of steps to read in advance; 0 for none.
        """
        self._corpus = corpus
        self._order = order
        self._first, self._count = share.rows(order.batch)
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(ahead, _MAX_READERS)), thread_name_prefix="data")
        self._read_ahead: dict[int, Future[TokenArray]] = {}
        self.wait_seconds = 0.0
        """Seconds that all calls of `take_rows` have waited for data so far."""

    def take_rows(self, step: int) -> TokenArray:
        """Return this process's rows of a step, in an array of shape (rows, seq_len + 1).

        Raises:
            DataError: These rows cannot be read. An error in a later step is raised when that step is requested.
            StorageError: The bucket cannot be read.
        """
        begun = time.perf_counter()
        window = range(step, step + 1 + self._ahead)
        for other in [other for other in self._read_ahead if other not in window]:
            self._read_ahead.pop(other).cancel()
        for number in window:
            if number not in self._read_ahead:
                self._read_ahead[number] = self._pool.submit(self._read, number)
        try:
            return self._read_ahead.pop(step).result()
        finally:
            self.wait_seconds += time.perf_counter() - begun

    def close(self) -> None:
        """End the threads and discard what they are reading."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, step: int) -> TokenArray:
        positions = self._order.positions(step, self._first, self._count)
        return self._corpus.read(positions, self._order.seq_len + 1)
