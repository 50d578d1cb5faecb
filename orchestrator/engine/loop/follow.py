"""Following the program's output in the background while the loop waits, and keeping it in files."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.state.following import note_followed, note_following
from orchestrator.engine.state.kept_log import LogLimits, append_bounded
from orchestrator.errors import StorageError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.open_files import explain_exhaustion
from orchestrator.private_files import make_private_folder, open_private
from orchestrator.remote.host_operations import HostOperations

TIMES_EVERY = 5.0  # seconds between two notes of a file's size


def find_size_at(log: Path, moment: float) -> int:
    """Return how many bytes a local log had at a moment (epoch seconds), to within TIMES_EVERY; 0 when not noted."""
    try:
        lines = log.with_suffix(".times").read_text().splitlines()
    except FileNotFoundError:
        return 0
    notes = [(float(at), int(size)) for at, size in (line.split() for line in lines)]
    later = [size for at, size in notes if at > moment]
    earlier = [(at, size) for at, size in notes if at <= moment]
    if not earlier:
        return 0
    at, size = earlier[-1]
    if moment - at <= TIMES_EVERY:
        return size
    return later[0] if later else log.stat().st_size  # whatever followed the note was written within TIMES_EVERY


class LogFiles:
    """One file per rank below a folder; bytes are appended exactly as they came.

    Beside RANK.log, RANK.times holds lines of a time (epoch seconds) and the size of the log then. A log that becomes
    too large has a hole, see kept_log.py.
    """

    def __init__(self, folder: Path, hosts: int = 1, limits: LogLimits | None = None) -> None:
        """Make the folder.

        Args:
            folder: Of the files.
            hosts: Of how many hosts there will be files, which share what an attempt may take of the disk.
            limits: What is kept.
        """
        self._most = (limits or LogLimits()).of_host(hosts)
        make_private_folder(folder)
        self.folder = folder
        self._files: dict[int, IO[bytes]] = {}
        self._noted: dict[int, float] = {}  # when the size of a rank's file was last noted
        self._at: dict[int, int] = {}  # offset of a rank's next block, once offsets() was called

    def path(self, rank: int) -> Path:
        """Return the file of a rank."""
        return self.folder / f"{rank}.log"

    def offsets(self, ranks: list[int]) -> dict[int, int]:
        """Return the number of bytes already kept per rank, so that following resumes there."""
        self._at = {rank: self.measure(rank) for rank in ranks}
        return dict(self._at)

    def measure(self, rank: int) -> int:
        """Return up to which byte the log of a rank has come."""
        return self.path(rank).stat().st_size if self.path(rank).exists() else 0

    def write(self, rank: int, block: bytes) -> None:
        """Append a block to the file of a rank.

        Raises:
            StorageError: The disk is full or not writable.
        """
        try:
            file = self._files.get(rank)
            if file is None:
                opened = open(self.path(rank), "ab", buffering=0, opener=open_private)  # noqa: SIM115  # see close
                file = self._files[rank] = opened
            self._append(file, rank, block)
        except OSError as error:
            raise StorageError(
                f"the log cannot be kept in {self.folder}",
                f"{error.strerror or error}; the program continues",
                "free disk space, then: orch logs -f CLUSTER",
            ) from error

    def _append(self, file: IO[bytes], rank: int, block: bytes) -> None:
        """Append the part of a block that no other command following the same program has written."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            begin = self._at.get(rank)
            if begin is not None:
                self._at[rank] = begin + len(block)
                block = block[max(0, os.fstat(file.fileno()).st_size - begin) :]
            now = time.time()
            if now - self._noted.get(rank, 0.0) >= TIMES_EVERY:
                self._noted[rank] = now
                with open(self.path(rank).with_suffix(".times"), "a", opener=open_private) as times:
                    times.write(f"{now:.0f} {os.fstat(file.fileno()).st_size}\n")
            append_bounded(file, self.path(rank), block, self._most)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class Follower:
    """Streams a job's logs from all its hosts until they end; `changed` is set whenever one of them ended."""

    def __init__(
        self, hands: HostOperations, job: str, folder: Path, narrator: Narrator, ranks: tuple[int, ...] | None
    ) -> None:
        self.job = job
        self.changed = threading.Event()
        self.outcomes: dict[int, HostOutcome] = {}
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._narrator = narrator
        self._ranks = ranks if ranks is not None else tuple(host.rank for host in hands.hosts)
        self._files = LogFiles(folder, len(self._ranks))
        self._thread = threading.Thread(target=self._run, args=(hands,), daemon=True, name=f"follow-{job}")
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the logs are still being followed."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Return True when some host ended, or all of them did, within `seconds`."""
        happened = self.changed.wait(seconds)
        self.changed.clear()
        return happened or not self.running

    def find_incomplete(self, sizes: Mapping[int, int]) -> tuple[int, ...]:
        """Return the ranks of which less has come than their logs hold, given the sizes of these."""
        return tuple(rank for rank, size in sorted(sizes.items()) if self._files.measure(rank) < size)

    def finish(self, seconds: float) -> None:
        """Wait up to `seconds` for the last lines."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Stop following and close the files."""
        self._stop.set()
        self._thread.join(5.0)
        self._files.close()

    def _run(self, hands: HostOperations) -> None:
        try:
            with suppress(OSError):  # a full disk is reported by what is written next
                note_following(self._files.folder)
            offsets = self._files.offsets(list(self._ranks))
            hands.follow_job(
                self.job, self._sink, offsets, self._ranks, stop=self._stop, on_end=self._ended, on_away=self._away
            )
        except BaseException as error:  # kept for the loop, which reports it or raises it again: see wait.py
            self.error = explain_exhaustion(error) or error
        finally:
            with suppress(OSError):
                note_followed(self._files.folder, complete=self._has_all())
            self.changed.set()

    def _has_all(self) -> bool:
        """Return whether the program has ended on all hosts, with a status, so that all of its output has come."""
        ends = [self.outcomes.get(rank) for rank in self._ranks]
        return self.error is None and all(end is not None and end.failure is None for end in ends)

    def _sink(self, host: HostAddress, block: bytes) -> None:
        self._files.write(host.rank, block)
        self._narrator.output(host, block)

    def _away(self, _rank: int) -> None:
        self.changed.set()  # worth observing the provider immediately

    def _ended(self, outcome: HostOutcome) -> None:
        self.outcomes[outcome.rank] = outcome
        self.changed.set()
