"""Batches by step number: this rank's rows, read one step ahead in a thread."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.corpus import Corpus
from trainer.errors import ConfigError, DataError
from trainer.order import RowOrder

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DataState:
    """Where in which data a run is: everything that resuming needs. step: steps whose rows were used."""

    step: int
    seed: int
    batch: int
    seq_len: int
    source: str
    total_bytes: int
    fingerprint: str

    @property
    def position(self) -> int:
        """Rows used so far, over all ranks."""
        return self.step * self.batch

    def check_continues(self, earlier: DataState, *, allow_change: bool) -> list[str]:
        """What differs from the checkpoint's data. Raises DataError or ConfigError unless it is allowed."""
        changes = [
            f"{name} {before} -> {now}"
            for name, before, now in (
                ("corpus bytes", earlier.total_bytes, self.total_bytes),
                ("corpus fingerprint", earlier.fingerprint, self.fingerprint),
                ("seed", earlier.seed, self.seed),
                ("batch", earlier.batch, self.batch),
                ("seq_len", earlier.seq_len, self.seq_len),
            )
            if before != now
        ]
        if not changes or allow_change:
            return changes
        kind = DataError if changes[0].startswith("corpus") else ConfigError
        raise kind(
            f"the data is not what the checkpoint was made with ({'; '.join(changes)}), so its order cannot go on: "
            "restore it, or accept another order with data.allow_change=true"
        )


class Batches:
    """The rows of one rank. Rows of a step go to ranks in order: rank r has the r-th share."""

    def __init__(self, corpus: Corpus, order: RowOrder, rank: int, ranks: int) -> None:
        self._corpus = corpus
        self._order = order
        self._count = order.batch // ranks
        self._first = rank * self._count
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="data")
        self._ahead: tuple[int, Future[Rows]] | None = None

    def take(self, step: int) -> Rows:
        """This rank's rows of the step. Shape (batch / ranks, seq_len + 1). Raises DataError."""
        if self._ahead is not None and self._ahead[0] == step:
            future = self._ahead[1]
        else:
            future = self._pool.submit(self._read, step)
        self._ahead = (step + 1, self._pool.submit(self._read, step + 1))
        return future.result()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, step: int) -> Rows:
        positions = self._order.positions(step, self._first, self._count)
        return self._corpus.read(positions, self._order.seq_len + 1)
