"""The rows of one process by step number, read some steps ahead by threads."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from trainer.data.corpus import Corpus
from trainer.engine import TokenArray
from trainer.order import RowOrder
from trainer.shape.mesh import RowShare

_MOST_READERS = 4  # steps that are read at the same time


class Batches:
    """share: which rows of each step are this process's. ahead: steps that are read in advance; 0: none.

    Nothing is kept from step to step, so any step may be asked for at any time; the next ones are then read ahead.
    """

    def __init__(self, corpus: Corpus, order: RowOrder, share: RowShare, ahead: int) -> None:
        self._corpus = corpus
        self._order = order
        self._first, self._count = share.rows(order.batch)
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(ahead, _MOST_READERS)), thread_name_prefix="data")
        self._read_ahead: dict[int, Future[TokenArray]] = {}
        self.waited = 0.0
        """Seconds that all calls of `take` have waited for data so far."""

    def take(self, step: int) -> TokenArray:
        """This process's rows of the step. Shape (rows, seq_len + 1).

        Raises DataError or StorageError when these very rows could not be read; later ones are told when they are
        asked for.
        """
        begun = time.perf_counter()
        wanted = range(step, step + 1 + self._ahead)
        for other in [other for other in self._read_ahead if other not in wanted]:
            self._read_ahead.pop(other).cancel()
        for number in wanted:
            if number not in self._read_ahead:
                self._read_ahead[number] = self._pool.submit(self._read, number)
        try:
            return self._read_ahead.pop(step).result()
        finally:
            self.waited += time.perf_counter() - begun

    def close(self) -> None:
        """End the threads; what they are reading is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, step: int) -> TokenArray:
        positions = self._order.positions(step, self._first, self._count)
        return self._corpus.read(positions, self._order.seq_len + 1)
