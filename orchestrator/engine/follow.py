"""Following the program's output in the background while the loop waits, and keeping it in files."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import IO

from orchestrator.engine.narrator import Narrator
from orchestrator.errors import StorageError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.remote.hands import Hands


class LogFiles:
    """One file per rank under a folder; bytes are appended exactly as they came."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[int, IO[bytes]] = {}
        self._at: dict[int, int] = {}  # where the next block of a rank begins, once offsets() was asked

    def path(self, rank: int) -> Path:
        return self.folder / f"{rank}.log"

    def offsets(self, ranks: list[int]) -> dict[int, int]:
        """Bytes already kept, so that following goes on where it stopped."""
        self._at = {rank: self.path(rank).stat().st_size if self.path(rank).exists() else 0 for rank in ranks}
        return dict(self._at)

    def write(self, rank: int, block: bytes) -> None:
        try:
            file = self._files.get(rank)
            if file is None:
                file = self._files[rank] = self.path(rank).open("ab", buffering=0)
            self._append(file, rank, block)
        except OSError as error:
            raise StorageError(
                f"the log cannot be kept in {self.folder}",
                f"{error.strerror or error}; the program goes on",
                "make room, then: orch logs -f CLUSTER",
            ) from error

    def _append(self, file: IO[bytes], rank: int, block: bytes) -> None:
        """What another command that follows the same program has written already is not written twice."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            begin = self._at.get(rank)
            if begin is not None:
                self._at[rank] = begin + len(block)
                block = block[max(0, os.fstat(file.fileno()).st_size - begin) :]
            file.write(block)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class Follower:
    """Streams a job's logs from all its hosts until they end; `changed` is set whenever one of them ended."""

    def __init__(self, hands: Hands, job: str, folder: Path, narrator: Narrator, ranks: tuple[int, ...] | None) -> None:
        self.job = job
        self.changed = threading.Event()
        self.outcomes: dict[int, HostOutcome] = {}
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._files = LogFiles(folder)
        self._narrator = narrator
        self._ranks = ranks if ranks is not None else tuple(host.rank for host in hands.hosts)
        self._thread = threading.Thread(target=self._run, args=(hands,), daemon=True, name=f"follow-{job}")
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """True when some host ended, or all of it did, within `seconds`."""
        happened = self.changed.wait(seconds)
        self.changed.clear()
        return happened or not self.running

    def finish(self, seconds: float) -> None:
        """Let the last lines arrive."""
        self._thread.join(seconds)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self._files.close()

    def _run(self, hands: Hands) -> None:
        try:
            offsets = self._files.offsets(list(self._ranks))
            hands.follow(
                self.job, self._sink, offsets, self._ranks, stop=self._stop, on_end=self._ended, on_away=self._away
            )
        except BaseException as error:  # kept and raised again by the loop, see Follower.error
            self.error = error
        finally:
            self.changed.set()

    def _sink(self, host: HostAddress, block: bytes) -> None:
        self._files.write(host.rank, block)
        self._narrator.output(host, block)

    def _away(self, _rank: int) -> None:
        self.changed.set()  # worth a look at the provider at once

    def _ended(self, outcome: HostOutcome) -> None:
        self.outcomes[outcome.rank] = outcome
        self.changed.set()
