"""What reading the log of a program and that of a setup share: where to begin, which ranks, local copies."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.loop.follow import find_size_at
from orchestrator.engine.state.kept_log import copy_log, read_cut
from orchestrator.errors import IdentityMismatch, UserError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.next_step import NextStep
from orchestrator.plan.host_version import raise_other_version
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import GiveUp
from orchestrator.remote.deadlines import READ_SECONDS, SHORT, TRANSFER_SECONDS, Stall
from orchestrator.remote.fence import REFUSED
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
_START = re.compile(rb"^start (\d{1,18})$", re.MULTILINE)  # what templates/remote/log-start.sh prints


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


def read_current_logs(
    fleet: Fleet, folder: str, sink: Sink, ranks: tuple[int, ...], start: LogStart
) -> tuple[HostOutcome, ...]:
    """Give the logs of a job as they are at this moment to `sink`. Return the outcomes of hosts that failed."""
    return read_logs_from(fleet, folder, sink, ranks, find_offsets(fleet, folder, ranks, start))


def read_logs_from(
    fleet: Fleet,
    folder: str,
    sink: Sink,
    ranks: tuple[int, ...],
    begin: Offsets,
    stop: threading.Event | None = None,
) -> tuple[HostOutcome, ...]:
    """Do as `read_current_logs` from known places on; `stop` ends it early."""
    answering = [rank for rank in ranks if rank not in {outcome.rank for outcome in begin.silent}]

    def command(host: HostAddress) -> str:
        return shell_command("log-read.sh", folder, str(begin.offsets.get(host.rank, 0)))

    deadline = Stall(TRANSFER_SECONDS, longest=READ_SECONDS)
    result = fleet.run(command, ranks=answering, on_output=sink, timeout=deadline, stop=stop, fenced=False)
    refused = [outcome.rank for outcome in result.failed if outcome.exit_code == REFUSED]
    outcomes = {one.rank: one for one in (*begin.silent, *result.outcomes)}
    if refused:
        outcomes |= {one.rank: one for one in fleet.run("true", ranks=refused, timeout=SHORT).outcomes}
    return tuple(outcome for outcome in outcomes.values() if not outcome.ok)


def follow_log(
    fleet: Fleet, folder: str, sink: Sink, ranks: tuple[int, ...], offsets: Mapping[int, int]
) -> tuple[HostOutcome, ...]:
    """Give the logs of a job to `sink` until it has ended on all hosts, and return the outcomes.

    The first host whose folder is of another version ends it.
    """
    from orchestrator.remote.jobs import follow_job

    refused = threading.Event()

    def note(outcome: HostOutcome) -> None:
        if outcome.failure is Failure.OTHER_VERSION:
            refused.set()

    return follow_job(fleet, folder, sink, offsets=offsets, ranks=ranks, stop=refused, on_end=note).outcomes


def explain_unread(cluster: str, what: str, failed: Sequence[HostOutcome]) -> GiveUp:
    """Return the end of a command that could not read from some hosts.

    Args:
        cluster: The cluster.
        what: What is missing, without the hosts.
        failed: The outcomes of these hosts.

    Raises:
        IdentityMismatch: One of them is not the host on record.
        OrchError: The folder of one of them is of another version.
    """
    raise_other_version(cluster, failed)
    lost = any(outcome.failure is not None for outcome in failed)
    what = f"{what} on {format_hosts(outcome.rank for outcome in failed)}"
    if wrong := [outcome for outcome in failed if outcome.failure is Failure.IDENTITY]:
        raise IdentityMismatch(what, wrong[0].detail, wrong[0].remedy or f"orch status {cluster} --refresh")
    return GiveUp(
        code="host-lost" if lost else "not-found",
        status=Exit.HOST_LOST if lost else Exit.NOT_FOUND,
        what=what,
        why=failed[0].detail or "its program was not started there",
        next_step=NextStep(f"orch status {cluster} --refresh", "asks the provider")
        if lost
        else NextStep(f"orch status {cluster}"),
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
