"""Keep what an engine does, in words, so that clients of a service see it as it happens."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.progress import DescribedNarrator, Progress, ProgressKind
from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait
from orchestrator.store.store import Store

KEPT_SECONDS = 7 * 86400.0
MOVED_EVERY, WAIT_EVERY = 1.0, 15.0  # seconds between two rows about the same transfer or wait
_MOST_WAITING = 1000  # rows that are not written yet; more are dropped, as nothing is decided by them
_PASSING = (ProgressKind.MOVED, ProgressKind.WAIT)  # each takes the place of the one before


@dataclass(kw_only=True)
class ProgressKeeper:
    """Writes rows in an own thread: a narrator returns immediately, also while the store is away.

    Attributes:
        open_store: Opens the store, in that thread.
    """

    open_store: Callable[[], Store]
    _rows: queue.Queue[tuple[KeptProgress, Progress] | None] = field(default_factory=lambda: queue.Queue(_MOST_WAITING))
    _lock: threading.Lock = field(default_factory=threading.Lock)  # narrators of several threads start one writer
    _thread: threading.Thread | None = None

    def narrate(self, cluster: str, work: str, log: Narrator) -> Narrator:
        """Return a narrator that keeps what happens, and passes it to a log.

        Args:
            cluster: Qualified name of the cluster.
            work: The work on it: "order UID" or "job NUMBER".
            log: The log.
        """
        return KeptProgress(self, cluster, work, log)

    def add(self, teller: KeptProgress, progress: Progress) -> None:
        """Keep one thing, unless too much waits already."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, daemon=True, name="progress")
                self._thread.start()
        with suppress(queue.Full):
            self._rows.put_nowait((teller, progress))

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for so long at most."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._rows.put(None, timeout=seconds)
            self._thread.join(seconds)
            self._thread = None

    def _write(self) -> None:
        store: Store | None = None
        while (row := self._rows.get()) is not None:
            try:
                store = store or self.open_store()
                row[0].write(store, row[1])
            except Exception as error:  # the store is away, or a defect: neither may end this thread
                if not isinstance(error, OrchError):
                    row[0].log.note(f"progress is not kept: {type(error).__name__}: {error}")
        if store is not None:
            store.close()


class KeptProgress(DescribedNarrator):
    """A narrator of the work on one cluster."""

    def __init__(self, keeper: ProgressKeeper, cluster: str, work: str, log: Narrator) -> None:
        """Take where it is kept, the cluster and the work as for ProgressKeeper.narrate, and the log."""
        self._keeper, self._cluster, self._work, self.log = keeper, cluster, work, log
        self._last: tuple[ProgressKind, str] | None = None
        self._kept_at = 0.0
        self._passing: int | None = None  # the newest row, where the next one takes its place; of the writing thread

    def show(self, progress: Progress) -> None:
        same = self._last == (progress.kind, progress.words)
        every = {ProgressKind.MOVED: MOVED_EVERY, ProgressKind.WAIT: WAIT_EVERY}.get(progress.kind, 0.0)
        now = time.monotonic()
        if (same and now - self._kept_at < every) or not progress.words:
            return
        self._last, self._kept_at = (progress.kind, progress.words), now
        self._keeper.add(self, progress)

    def write(self, store: Store, progress: Progress) -> None:
        """Write one row. Called by the keeper's thread alone."""
        document = json.dumps({**progress.as_json(), "work": self._work}, sort_keys=True)
        number = store.keep_progress(self._cluster, document, replaced=self._passing)
        self._passing = number if progress.kind in _PASSING else None

    def output(self, host: HostAddress, block: bytes) -> None:
        self.log.output(host, block)

    def starting(self, action: Action) -> None:
        self.log.starting(action)
        super().starting(action)

    def finished(self, action: Action, seconds: float) -> None:
        self.log.finished(action, seconds)
        super().finished(action, seconds)

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        self.log.failed(action, outcomes)
        super().failed(action, outcomes)

    def waiting(self, wait: Wait, seconds: float) -> None:
        self.log.waiting(wait, seconds)
        super().waiting(wait, seconds)

    def progress(self, what: str, done: int, total: int) -> None:
        self.log.progress(what, done, total)
        super().progress(what, done, total)

    def note(self, words: str) -> None:
        self.log.note(words)
        super().note(words)
