"""Reading and following the logs of a job, from its hosts, or from the local copy when they are stopped or deleted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.engine.loop.follow import find_size_at
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.own_key import await_own_key
from orchestrator.engine.operations.refresh import refresh_cluster
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import IdentityMismatch, NotFoundError, UserError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.ranks import count_hosts, format_hosts
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_command
from orchestrator.slices import SliceState
from orchestrator.store.lookup import cluster_not_found, describe_deletion, find_current_job
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


def follow_logs(
    cluster: str,
    job: int | None,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart = FROM_BEGINNING,
) -> CommandResult:
    """Give each host's log to `sink`.

    Args:
        cluster: The cluster's name.
        job: The job's number, or None for the current one.
        sink: Receives blocks of output.
        narrator: Receives notes.
        hosts: Ranks to read, or None for all.
        follow: Whether to continue until the job has ended everywhere; its result is then recorded.
        start: Where to begin in the log of each host.

    Raises:
        NotFoundError: There is no such job or log.
        UserError: The job did not run on one of `hosts`.
    """
    record, chosen = _find(cluster, job)
    if not record.hosts or record.last_state == SliceState.STOPPED:
        result = _read_local_copy(record, chosen, sink, hosts, start)
        narrator.note(f"{_describe_absence(record)}; this is the local copy of its output")
        return replace(result, step=_recorded_end(chosen)) if follow else result
    ranks = _choose_ranks(record, chosen, chosen.ranks or range(len(record.hosts)), hosts)
    read = replace(record, hosts=tuple(host for host in record.hosts if host.rank in ranks))
    with open_reader(record.project) as reader:
        admit_here(reader, read, narrator)
        await_own_key(reader, read, narrator)
    with open_pins(narrator.note) as pins, Fleet(record.hosts, pins=pins) as fleet:
        if not follow:
            return _read_current(fleet, record.name, chosen, sink, ranks, start)
        outcomes = _follow(fleet, chosen, sink, ranks, start)
    refresh_cluster(cluster, narrator)
    return CommandResult(
        step=_verdict(cluster, chosen, outcomes), outcomes=outcomes, job_id=chosen.id, run_id=chosen.run_id
    )


def read_log_from(file: Path, start: LogStart) -> bytes:
    """Return the part of a local copy that begins at `start`; its times were noted as it was written."""
    content = file.read_bytes()
    begin = 0
    if start.tail is not None:
        begin = len(content) - len(b"".join(content.splitlines(keepends=True)[-start.tail :] if start.tail else []))
    if start.seconds is not None:
        begin = max(begin, find_size_at(file, time.time() - start.seconds))
    return content[begin:]


def _find(cluster: str, job: int | None) -> tuple[ClusterRecord, JobRecord]:
    with open_reader() as reader:
        record = reader.cluster(cluster) or reader.deleted_cluster(cluster)
        if record is None:
            raise cluster_not_found(reader, cluster)
        jobs = [one for one in reader.jobs(record) if (one.id == job if job is not None else True)]
    chosen = find_current_job(jobs)
    if chosen is None:
        why = describe_deletion(record) if record.deleted is not None else ""
        next_step = f"orch runs -c {cluster}" if why else f"orch status {cluster}"
        raise NotFoundError(f"no job {job or ''} on '{cluster}'".replace("  ", " "), why, next_step)
    return record, chosen


def _choose_ranks(
    record: ClusterRecord, job: JobRecord, ran: Collection[int], requested: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the ranks to read: those that are requested, of those on which the job ran."""
    missing = [rank for rank in requested or () if rank not in ran]
    if missing:
        what = f"job {job.id} of '{record.name}' has no host {missing[0]}"
        raise UserError(what, f"it ran on {format_hosts(ran)}", f"orch status {record.name}")
    return tuple(ran if requested is None else requested)


def _folder(job: JobRecord) -> str:
    return host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}")


def _log_path(job: JobRecord) -> str:
    return f'"$HOME/.orch/jobs/{_folder(job)}/log"'


def _read_current(
    fleet: Fleet, cluster: str, job: JobRecord, sink: Sink, ranks: tuple[int, ...], start: LogStart
) -> CommandResult:
    """Read the log as it is at this moment."""
    path = _log_path(job)
    offsets = _find_offsets(fleet, job, ranks, start)

    def command(host: HostAddress) -> str:
        return f"test -e {path} && tail -c +{offsets.get(host.rank, 0) + 1} {path}"

    result = fleet.run(command, ranks=ranks, on_output=sink)
    failed = [outcome for outcome in result.outcomes if not outcome.ok]
    if not failed:
        return CommandResult(step=Done(""), outcomes=(), job_id=job.id, run_id=job.run_id)
    lost = any(outcome.failure is not None for outcome in failed)
    what = f"no log of job {job.id} on {format_hosts(outcome.rank for outcome in failed)}"
    if wrong := [outcome for outcome in failed if outcome.failure is Failure.IDENTITY]:
        raise IdentityMismatch(what, wrong[0].detail, wrong[0].remedy or f"orch status {cluster} --refresh")
    step = GiveUp(
        code="host-lost" if lost else "not-found",
        status=Exit.HOST_LOST if lost else Exit.NOT_FOUND,
        what=what,
        why=failed[0].detail or "its program was not started there",
        next_step=f"orch status {cluster} --refresh   asks the provider" if lost else f"orch status {cluster}",
    )
    return CommandResult(step=step, outcomes=tuple(failed), job_id=job.id, run_id=job.run_id)


def _follow(
    fleet: Fleet, job: JobRecord, sink: Sink, ranks: tuple[int, ...], start: LogStart
) -> tuple[HostOutcome, ...]:
    from orchestrator.remote.jobs import follow_job

    offsets = _find_offsets(fleet, job, ranks, start)
    return follow_job(fleet, _folder(job), sink, offsets=offsets, ranks=ranks).outcomes


def _find_offsets(fleet: Fleet, job: JobRecord, ranks: tuple[int, ...], start: LogStart) -> dict[int, int]:
    """Return the byte at which to begin per rank, by each host's own clock; a host without an answer is left out."""
    if start == FROM_BEGINNING:
        return {}
    tail, seconds = ("" if number is None else str(number) for number in (start.tail, start.seconds))
    result = fleet.run(shell_command("log-start.sh", _folder(job), tail, seconds), ranks=ranks)
    found = {host.outcome.rank: _START.search(host.output) for host in result.hosts if host.outcome.ok}
    return {rank: int(match[1]) for rank, match in found.items() if match is not None}


def _verdict(cluster: str, job: JobRecord, outcomes: tuple[HostOutcome, ...]) -> Done | GiveUp:
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        return Done(f"job {job.id} succeeded on {count_hosts(len(outcomes))}")
    first = failed[0]
    lost = first.failure in (Failure.LOST, Failure.FROZEN, Failure.UNREACHABLE, Failure.REFUSED)
    status = first.status if first.status is not None else Exit.HOST_LOST
    return GiveUp(
        code="host-lost" if lost else "program-failed",
        status=status,
        what=f"job {job.id} on rank {first.rank}: {first.verdict}",
        why=first.last_line or first.detail,
        next_step=f"orch resume {cluster}"
        if job.kind != "exec"
        else f"orch logs {cluster} {job.id}   shows its output",
    )


def _read_local_copy(
    record: ClusterRecord, job: JobRecord, sink: Sink, hosts: tuple[int, ...] | None, start: LogStart
) -> CommandResult:
    """Read the copies that were made here while the job was followed, or before its hosts were stopped or deleted."""
    folder = load_paths().logs(record.uid, job.id)
    files = sorted(folder.glob("attempt-*/*.log"))
    if not files:
        raise _no_copy_error(record, job)
    ranks = _choose_ranks(record, job, sorted({int(file.stem) for file in files}), hosts)
    known = {host.rank: host for host in record.hosts}  # those of stopped hosts
    for file in files:
        rank = int(file.stem)
        if rank in ranks:
            sink(known.get(rank) or _absent_host(rank), read_log_from(file, start))
    return CommandResult(step=Done(""), outcomes=(), job_id=job.id, run_id=job.run_id)


def _describe_absence(record: ClusterRecord) -> str:
    if record.deleted is not None:
        return describe_deletion(record)
    return f"cluster '{record.name}' " + ("is stopped" if record.hosts else "has no hosts now")


def _no_copy_error(record: ClusterRecord, job: JobRecord) -> NotFoundError:
    next_step = f"orch runs -c {record.name}"
    if job.bucket:
        next_step = f"in the bucket: orch storage ls {job.bucket}/{job.run_id}/logs/"
    elif record.deleted is None:
        next_step = f"orch start {record.name}" if record.hosts else f"orch status {record.name}"
    return NotFoundError(_describe_absence(record), f"there is no local copy of the output of job {job.id}", next_step)


def _recorded_end(job: JobRecord) -> Done | GiveUp:
    """Return how a job ended, as it is on record."""
    if not job.status:
        return Done(job.what)
    return GiveUp(code=job.code, status=job.status, what=job.what, why=job.why, next_step=job.next_step)


def _absent_host(rank: int) -> HostAddress:
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
