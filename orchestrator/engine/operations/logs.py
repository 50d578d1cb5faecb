"""Reading and following the logs of a job, from its hosts, or from the local copy when they are stopped or deleted."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.log_sources import (
    FROM_BEGINNING,
    LogStart,
    Sink,
    choose_ranks,
    explain_unread,
    follow_log,
    give_local_files,
    read_current_logs,
)
from orchestrator.engine.operations.output_source import is_absent
from orchestrator.engine.operations.own_key import refuse_without_key
from orchestrator.engine.operations.refresh import refresh_cluster
from orchestrator.engine.operations.setup_logs import no_setup_error, show_setup
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import NotFoundError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.next_step import NextStep
from orchestrator.paths import load_paths
from orchestrator.plan.host_version import raise_other_version
from orchestrator.plan.ranks import count_hosts, label_rank
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.stopped import FROM_ELSEWHERE, SIGNAL_CODE, make_stopped_outcome
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.remote.fleet import Fleet
from orchestrator.store.lookup import cluster_not_found, describe_deletion, find_current_job
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord


def follow_logs(
    cluster: str,
    job: int | None,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart = FROM_BEGINNING,
    setup: bool = False,
) -> CommandResult:
    """Give each host's log to `sink`: that of the program, or of the setup if the program never started.

    Args:
        cluster: The cluster's name.
        job: The job's number, or None for the current one.
        sink: Receives blocks of output.
        narrator: Receives notes.
        hosts: Ranks to read, or None for all.
        follow: Whether to continue until the job has ended everywhere; its result is then recorded.
        start: Where to begin in the log of each host.
        setup: Whether to give the log of the setup in any case.

    Raises:
        NotFoundError: There is no such job or log.
        UserError: The job did not run on one of `hosts`.
    """
    with open_reader() as reader:
        record, chosen = find_job(reader, cluster, job)
    if setup or not chosen.started:
        ending = show_setup(record, chosen, sink, narrator, hosts=hosts, follow=follow, start=start)
        if ending is not None:
            return replace(ending, step=describe_recorded_end(chosen)) if follow and chosen.state == "ended" else ending
        if setup:
            raise no_setup_error(record)
    if is_absent(record):
        result = _read_local_copy(record, chosen, sink, hosts, start)
        narrator.note(describe_copy(record))
        return replace(result, step=describe_recorded_end(chosen)) if follow else result
    ranks = choose_ranks(record, chosen, chosen.ranks or range(len(record.hosts)), hosts)
    read = replace(record, hosts=tuple(host for host in record.hosts if host.rank in ranks))
    with open_reader(record.project) as reader:
        admit_here(reader, read, narrator)
        refuse_without_key(reader, read, narrator)
        fenced = fence_recorded_hosts(reader, record)
    with open_pins(narrator.note) as pins, Fleet(fenced, pins=pins) as fleet:
        if not follow:
            return _read_current(fleet, record.name, chosen, sink, ranks, start)
        outcomes = follow_log(fleet, _folder(chosen), sink, ranks, start)
    refresh_cluster(cluster, narrator)
    return CommandResult(
        step=_verdict(cluster, chosen, outcomes), outcomes=outcomes, job_id=chosen.id, run_id=chosen.run_id
    )


def find_job(reader: Reader, cluster: str, job: int | None) -> tuple[ClusterRecord, JobRecord]:
    """Return a job, or the current one, of a cluster that exists, or of the newest deleted one of the name.

    Raises:
        NotFoundError: There is no such cluster or job.
    """
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


def _folder(job: JobRecord) -> str:
    return host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}")


def _read_current(
    fleet: Fleet, cluster: str, job: JobRecord, sink: Sink, ranks: tuple[int, ...], start: LogStart
) -> CommandResult:
    """Read the log as it is at this moment."""
    failed = read_current_logs(fleet, _folder(job), sink, ranks, start)
    step = explain_unread(cluster, f"no log of job {job.id}", failed) if failed else Done("")
    return CommandResult(step=step, outcomes=failed, job_id=job.id, run_id=job.run_id)


def _verdict(cluster: str, job: JobRecord, outcomes: tuple[HostOutcome, ...]) -> Done | GiveUp:
    raise_other_version(cluster, outcomes)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        return Done(f"job {job.id} succeeded on {count_hosts(len(outcomes))}")
    again = (
        resume_or_launch(cluster, None if job.bucket else False)
        if job.kind != "exec"
        else NextStep(f"orch logs {cluster} {job.id}", "shows its output")
    )
    own = [outcome for outcome in failed if outcome.ended_by is None]
    if not own and (ending := make_stopped_outcome(f"job {job.id}", failed, again)):
        return GiveUp(code=ending.code, status=ending.status, what=ending.what, next_step=ending.next_step)
    first = next((outcome for outcome in own if outcome.status not in FROM_ELSEWHERE), own[0])
    where = f"{label_rank(first.rank)} (rank {first.rank})"
    if first.failure not in (None, Failure.LOST):  # the host has not reported how its program ended
        return GiveUp(
            code="host-lost",
            status=Exit.HOST_LOST,
            what=f"the log of job {job.id} on {where} could not be followed: {first.verdict}",
            why=first.detail,
            next_step=NextStep(f"orch status {cluster} --refresh", "asks the provider"),
        )
    status = first.status if first.status is not None else Exit.HOST_LOST
    lost = first.failure is Failure.LOST
    return GiveUp(
        code="host-lost" if lost else SIGNAL_CODE if status in FROM_ELSEWHERE else "program-failed",
        status=status,
        what=f"job {job.id} failed on {where}: {first.verdict}",
        why=first.last_line or first.detail,
        next_step=again,
    )


def _read_local_copy(
    record: ClusterRecord, job: JobRecord, sink: Sink, hosts: tuple[int, ...] | None, start: LogStart
) -> CommandResult:
    """Read the copies that were made here while the job was followed, or before its hosts were stopped or deleted."""
    folder = load_paths().logs(record.uid, job.id)
    files = sorted(folder.glob("attempt-*/*.log"))
    if not files:
        raise no_output_error(record, job)
    give_local_files(record, job, files, sink, hosts=hosts, start=start)
    return CommandResult(step=Done(""), outcomes=(), job_id=job.id, run_id=job.run_id)


def describe_copy(record: ClusterRecord) -> str:
    """Return that output comes from a copy, as the hosts are absent."""
    return f"{_describe_absence(record)}; this is the copy of its output that was kept"


def _describe_absence(record: ClusterRecord) -> str:
    if record.deleted is not None:
        return describe_deletion(record)
    return f"cluster '{record.name}' " + ("is stopped" if record.hosts else "has no hosts now")


def no_output_error(record: ClusterRecord, job: JobRecord) -> NotFoundError:
    """Return the error for a job of which no output is known."""
    next_step = f"orch runs -c {record.name}"
    if job.bucket:
        next_step = f"in the bucket: orch storage ls {job.bucket}/{job.run_id}/logs/"
    elif record.deleted is None:
        stopped = is_absent(record) and record.hosts
        next_step = f"orch start {record.name}" if stopped else f"orch status {record.name}"
    what = f"there is no output of job {job.id} on '{record.name}'"
    why = "its program has not begun, or its output is not kept any more"
    return NotFoundError(what, _describe_absence(record) if is_absent(record) else why, next_step)


def describe_recorded_end(job: JobRecord) -> Done | GiveUp:
    """Return how a job ended, as it is on record."""
    if not job.status:
        return Done(job.what)
    return GiveUp(code=job.code, status=job.status, what=job.what, why=job.why, next_step=job.next_step)
