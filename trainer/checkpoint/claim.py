"""Claims a run for this start of it, keeps its beat, and notices when another start has taken it over."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, TypeVar

from ..environment import Run
from ..errors import LASTING, AccessDenied, LastingStorageError, StorageError, TakenOver
from .epoch import BEAT, BEAT_SECONDS, EPOCH, Epoch, utc_timestamp
from .store import Store, StoredObject

_TRIES = 100
_YOUNG_SECONDS = 120.0
_YOUNG_PAUSE_SECONDS = 10.0
T = TypeVar("T")
_TAKEN_OVER = "another start of this run has taken it over: "


def hold_epoch(store: Store, run: Run) -> Epoch:
    """Return the epoch of this start: the one that the launcher claimed, else the next one, claimed here.

    Args:
        store: The run's folder.
        run: Its epoch is 0 when no launcher has claimed one in that folder.

    Raises:
        TakenOver: A later start has claimed the run.
        StorageError: The bucket fails.
    """
    for _ in range(_TRIES):
        found, last = _read_epoch(store)
        if run.epoch:
            if last is not None and last.epoch > run.epoch:
                raise_taken_over(last, run.epoch)
            return last if last is not None and last.epoch == run.epoch else _claim(run, run.epoch)
        mine = _claim(run, 1 + (last.epoch if last is not None else 0))
        if store.replace_if_unchanged(EPOCH, mine.to_json(), found.version if found is not None else None):
            return mine
    raise StorageError(f"{store.uri}/{EPOCH}: changed by others {_TRIES} times while this process tried to claim it")


def wait_for_access(claim: Callable[[], T], seconds: float, report: Callable[[str], None]) -> T:
    """Return what `claim` returns; while access is denied, repeat it, since the right may be a moment old.

    A changed policy takes "typically 2 minutes, potentially 7 minutes or longer" (Google Cloud IAM, "Access change
    propagation", read 2026-11-29); in AWS it is eventually consistent, too (IAM User Guide, "Troubleshoot IAM",
    "Changes that I make are not always immediately visible").

    Args:
        claim: Claims the run; called several times.
        seconds: For how long requests are repeated here at most.
        report: Prints a line with each further try.

    Raises:
        AccessDenied: Still, after two minutes.
        StorageError: What `claim` raises else.
    """
    until = time.monotonic() + min(_YOUNG_SECONDS, seconds)
    while True:
        try:
            return claim()
        except AccessDenied as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            report(f"note: {error}; a right that was just given is tried for {left:.0f} s more")
            time.sleep(min(_YOUNG_PAUSE_SECONDS, left))


def raise_taken_over(by: Epoch | int, own: int) -> NoReturn:
    """Raise TakenOver; `by` is the later epoch, or its number where no more is known."""
    who = f"epoch {by}" if isinstance(by, int) else f"{by.driver} at {by.time}, epoch {by.epoch}"
    raise TakenOver(f"{_TAKEN_OVER}{who}; this is epoch {own}, and writes nothing more")


def raise_shared_failure(failure: str) -> NoReturn:
    """Raise the StorageError, LastingStorageError or TakenOver of another rank, given its message."""
    if failure.startswith(_TAKEN_OVER):
        raise TakenOver(failure)
    raise LastingStorageError(failure) if LASTING in failure else StorageError(failure)


class Beat:
    """Context manager that writes beat.json in the background while this start holds its epoch."""

    def __init__(self, store: Store, epoch: Epoch) -> None:
        """Take the run's folder and the epoch of this start."""
        self._store, self._epoch = store, epoch
        self._failure: TakenOver | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def __enter__(self) -> Beat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def raise_failure(self) -> None:
        """Raise TakenOver once a later start has claimed the run."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while self._failure is None:
            try:
                check_epoch(self._store, self._epoch)
                self._store.put(BEAT, self._epoch.to_beat("trainer"))
            except TakenOver as error:
                self._failure = error
            except StorageError:
                pass  # a save reports a bucket that stays away; a missed beat only makes others wait less
            if self._ended.wait(BEAT_SECONDS):
                return


def check_epoch(store: Store, own: Epoch) -> None:
    """Raise TakenOver if a later start has claimed the run.

    Raises:
        TakenOver: It has.
        StorageError: The bucket fails.
    """
    _, last = _read_epoch(store)
    if last is not None and last.epoch > own.epoch:
        raise_taken_over(last, own.epoch)


def _read_epoch(store: Store) -> tuple[StoredObject | None, Epoch | None]:
    found = store.find(EPOCH)
    try:
        return found, None if found is None else Epoch.from_json(found.data)
    except ValueError as error:
        raise StorageError(f"{store.uri}/{EPOCH}: {error}") from error


def _claim(run: Run, epoch: int) -> Epoch:
    return Epoch(epoch=epoch, attempt=run.attempt, installation="", host=platform.node(), job="", time=utc_timestamp())
