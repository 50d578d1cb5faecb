"""Copies of the output of jobs that no process of this computer follows, made from their hosts or bucket for readers.

All readers of a job share one copy, and one connection to each of its hosts. A copy ends some time after its last
reader has left. It has the form, the place and the limits of what an engine keeps.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from orchestrator.engine.loop.follow import TIMES_EVERY, LogFiles
from orchestrator.engine.narrator import SilentNarrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.log_sources import Offsets, read_logs_from
from orchestrator.engine.operations.output_bucket import download_output
from orchestrator.engine.operations.output_source import OutputSource, choose_source, find_attempt_folder
from orchestrator.engine.operations.own_key import refuse_without_key
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.following import note_followed
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.open_files import explain_exhaustion
from orchestrator.private_files import write_whole
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.jobs import follow_job
from orchestrator.remote.scripts import shell_command
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord

MOST_COPIES = 8  # that are made at a time
MOST_HOSTS = 256  # of all of them: each has a connection and a thread
IDLE_SECONDS = 40.0  # after the last question of a reader; a service holds one for 20 s
_AGAIN_SECONDS = 5.0  # after a copy that failed
_Key = tuple[str, int, int]  # the cluster's uid, the job, the attempt
_TIME = re.compile(rb"^(\d{1,12}) (\d{1,18})\n", re.MULTILINE)
OpenReader = Callable[[str], AbstractContextManager[Reader]]


class BusyOutputError(OrchError):
    """Too many jobs are read from their hosts."""

    code = "streams-busy"


@dataclass(eq=False, kw_only=True)
class OutputCopy:
    """The copy of one attempt.

    Attributes:
        requested: When a reader has last asked for it, by the monotonic clock.
        has_come: Whether all that the hosts had at the beginning has come, or will not.
        failed: The outcomes of hosts that could not be read.
        error: Why none could be asked; None otherwise.
        ended: When it ended, by the monotonic clock; None while it is made.
    """

    record: ClusterRecord
    job: JobRecord
    ranks: tuple[int, ...]
    requested: float = 0.0
    has_come: bool = False
    failed: tuple[HostOutcome, ...] = ()
    error: OrchError | None = None
    ended: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def make(self, open_reader: OpenReader) -> None:
        """Copy what the hosts have, and then what comes, until the program ends or `stop` is set."""
        silent = SilentNarrator()
        try:
            if choose_source(self.record, self.job) is OutputSource.BUCKET:
                download_output(self.job, open_project_bucket(self.job.bucket, self.record.project, task=self.job.task))
                return
            read = replace(self.record, hosts=tuple(one for one in self.record.hosts if one.rank in self.ranks))
            with open_reader(self.record.project) as reader:
                admit_here(reader, read, silent)
                refuse_without_key(reader, read, silent)
                hosts = fence_recorded_hosts(reader, read)
            with open_pins(silent.note) as pins, Fleet(hosts, pins=pins) as fleet:
                self._copy(fleet)
        except OrchError as error:
            self.error = error
        except OSError as error:
            self.error = explain_exhaustion(error) or OrchError(
                "the output cannot be copied", str(error), f"orch status {self.record.name}"
            )
        finally:
            self.has_come, self.ended = True, time.monotonic()

    def _copy(self, fleet: Fleet) -> None:
        name = host_job_name(self.job.cluster_uid, f"{self.job.id}-a{self.job.attempt}")
        files = LogFiles(find_attempt_folder(self.job), len(self.ranks))

        def keep(host: HostAddress, block: bytes) -> None:
            files.write(host.rank, block)

        try:
            begin = Offsets(files.offsets(list(self.ranks)), ())
            self.failed = read_logs_from(fleet, name, keep, self.ranks, begin, stop=self.stop)
            self._copy_times(fleet, name, files, [rank for rank, at in begin.offsets.items() if not at])
            self.has_come = True
            ranks = [rank for rank in self.ranks if rank not in {one.rank for one in self.failed}]
            ends = follow_job(fleet, name, keep, offsets=files.offsets(ranks), ranks=ranks, stop=self.stop).outcomes
            if len(ends) == len(self.ranks) and all(end.failure is None for end in ends):
                note_followed(files.folder, complete=True)
        finally:
            files.close()

    def _copy_times(self, fleet: Fleet, name: str, files: LogFiles, ranks: list[int]) -> None:
        """Take over when the program wrote, in place of when it was copied: `--since` begins by that."""
        if not ranks:
            return
        for host in fleet.run(shell_command("log-times.sh", name), ranks=ranks, timeout=SHORT).hosts:
            if host.outcome.ok and (noted := _convert_times(host.output)):
                write_whole(files.path(host.outcome.rank).with_suffix(".times"), noted, flush=False)


class OutputCopies:
    """The copies that a process makes for its readers. Thread-safe."""

    def __init__(self, open_reader: OpenReader) -> None:
        """Prepare; nothing is sent.

        Args:
            open_reader: Opens the store for a project.
        """
        self._open_reader = open_reader
        self._copies: dict[_Key, OutputCopy] = {}
        self._lock = threading.Lock()

    def request(self, record: ClusterRecord, job: JobRecord) -> OutputCopy | None:
        """Return the copy of what a job's program prints, which is begun where needed; None where none is needed.

        It returns immediately.

        Raises:
            BusyOutputError: Too many copies are made.
        """
        if not job.started or choose_source(record, job) is OutputSource.KEPT:
            return None
        key, now = (record.uid, job.id, job.attempt), time.monotonic()
        with self._lock:
            copy = self._copies.get(key)
            if copy is None or (copy.ended is not None and now - copy.ended > _AGAIN_SECONDS):
                copy = self._begin(key, record, job)
            copy.requested = now
            return copy

    def count_steps(self, uid: str, job: int) -> int:
        """Return a number that changes when a copy of a job has come as far as its host, or has ended."""
        with self._lock:
            found = [copy for key, copy in self._copies.items() if key[:2] == (uid, job)]
        return sum(copy.has_come + (copy.ended is not None) for copy in found)

    def _begin(self, key: _Key, record: ClusterRecord, job: JobRecord) -> OutputCopy:
        ranks = tuple(job.ranks or range(len(record.hosts)))
        self._drop_ended()
        made = [copy for copy in self._copies.values() if copy.ended is None]
        if made and (len(made) >= MOST_COPIES or sum(len(copy.ranks) for copy in made) + len(ranks) > MOST_HOSTS):
            why = f"the output of {len(made)} jobs is being read from their hosts"
            raise BusyOutputError("too much output is read from hosts", why, "try again in a minute")
        copy = self._copies[key] = OutputCopy(record=record, job=job, ranks=ranks, requested=time.monotonic())
        make = threading.Thread(target=copy.make, args=(self._open_reader,), daemon=True, name=f"copy of {key}")
        make.start()
        threading.Thread(target=_end_idle, args=(copy, make), daemon=True, name=f"readers of {key}").start()
        return copy

    def _drop_ended(self) -> None:
        now = time.monotonic()
        for key, copy in [*self._copies.items()]:
            if copy.ended is not None and now - copy.ended > _AGAIN_SECONDS:
                del self._copies[key]


def _convert_times(output: bytes) -> str:
    """Return the times that a host noted, after what it wrote, as those of copies, which are noted before it."""
    lines, before = list[str](), 0
    for at, size in _TIME.findall(output):
        lines.append(f"{int(at) - TIMES_EVERY:.0f} {before}\n")
        before = int(size)
    return "".join(lines)


def _end_idle(copy: OutputCopy, make: threading.Thread) -> None:
    """End a copy that no reader has asked for since some time."""
    while make.is_alive():
        make.join(max(copy.requested + IDLE_SECONDS - time.monotonic(), 0.1))
        if time.monotonic() - copy.requested >= IDLE_SECONDS:
            copy.stop.set()
