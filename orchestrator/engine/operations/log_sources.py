"""What reading the log of a program and that of a setup share: where to begin, which ranks, local copies."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.loop.follow import find_size_at
from orchestrator.engine.state.kept_log import copy_log, read_cut
from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.ranks import format_hosts
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_command
from orchestrator.store.records import ClusterRecord, JobRecord

Sink = Callable[[HostAddress, bytes], None]


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where to begin reading a log. Given both, the later place counts.

    Attributes:
        tail: Number of last lines, or None.
        seconds: Age in seconds of the oldest output to read, or None.
    """

    tail: int | None = None
    seconds: int | None = None


FROM_BEGINNING = LogStart()
_START = re.compile(rb"^start (\d+)$", re.MULTILINE)  # what templates/remote/log-start.sh prints


def read_log_from(file: Path, start: LogStart) -> bytes:
    """Return the part of a local copy that begins at `start`; its times were noted as it was written."""
    copy, begin = io.BytesIO(), 0
    copy_log(file, copy)
    content, cut = copy.getvalue(), read_cut(file)
    if start.tail is not None:
        begin = len(content) - len(b"".join(content.splitlines(keepends=True)[-start.tail :] if start.tail else []))
    if start.seconds is not None:
        at = find_size_at(file, time.time() - start.seconds)
        if cut is not None and at > cut.begin:  # a line stands for what is not kept
            at = max(len(content) - (file.stat().st_size - at), cut.begin)
        begin = max(begin, at)
    return content[begin:]


def choose_ranks(
    record: ClusterRecord, job: JobRecord, ran: Collection[int], requested: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the ranks to read: those that are requested, of those on which the job ran."""
    missing = [rank for rank in requested or () if rank not in ran]
    if missing:
        what = f"job {job.id} of '{record.name}' has no host {missing[0]}"
        raise UserError(what, f"it ran on {format_hosts(ran)}", f"orch status {record.name}")
    return tuple(ran if requested is None else requested)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where to begin in the logs of hosts.

    Attributes:
        offsets: The first byte by rank; 0 where absent.
        silent: The outcomes of hosts that did not answer.
    """

    offsets: dict[int, int]
    silent: tuple[HostOutcome, ...]


def find_offsets(fleet: Fleet, folder: str, ranks: tuple[int, ...], start: LogStart) -> Offsets:
    """Return the byte of a job's log at which to begin per rank. Ages are measured by each host's own clock."""
    if start == FROM_BEGINNING:
        return Offsets({}, ())
    tail, seconds = ("" if number is None else str(number) for number in (start.tail, start.seconds))
    result = fleet.run(shell_command("log-start.sh", folder, tail, seconds), ranks=ranks, timeout=SHORT)
    found = {host.outcome.rank: _START.search(host.output) for host in result.hosts if host.outcome.ok}
    return Offsets(
        {rank: int(match[1]) for rank, match in found.items() if match is not None},
        tuple(outcome for outcome in result.outcomes if outcome.failure is not None),
    )


def give_local_files(
    record: ClusterRecord,
    job: JobRecord,
    files: list[Path],
    sink: Sink,
    *,
    hosts: tuple[int, ...] | None,
    start: LogStart,
) -> None:
    """Give local copies, named RANK.log, to `sink`, of the ranks that are requested."""
    ranks = choose_ranks(record, job, sorted({int(file.stem) for file in files}), hosts)
    known = {host.rank: host for host in record.hosts}  # those of stopped hosts
    for file in files:
        rank = int(file.stem)
        if rank in ranks:
            sink(known.get(rank) or find_logged_host(rank), read_log_from(file, start))


def find_logged_host(rank: int) -> HostAddress:
    """Return what stands for a host that does not exist any more, where its output is shown."""
    nowhere = Path()
    return HostAddress(
        rank=rank,
        alias=f"deleted.{rank}",
        host="deleted",
        port=22,
        user="",
        identity_file=nowhere,
        known_hosts=nowhere,
        internal_ip="deleted",
    )
