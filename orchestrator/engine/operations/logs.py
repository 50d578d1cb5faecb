"""Reading and following the logs of a job, from the source that output_source.py chooses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.kept_output import read_kept_output
from orchestrator.engine.operations.log_sources import (
    FROM_BEGINNING,
    LogStart,
    Sink,
    choose_ranks,
    explain_unread,
    find_logged_host,
    find_offsets,
    follow_log,
    read_current_logs,
)
from orchestrator.engine.operations.output_source import (
    OutputSource,
    choose_source,
    find_attempt_folder,
    is_absent,
)
from orchestrator.engine.operations.own_key import refuse_without_key
from orchestrator.engine.operations.refresh import refresh_cluster
from orchestrator.engine.operations.setup_logs import no_setup_error, show_setup
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.kept_log import describe_missing
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import NotFoundError, OrchError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.next_step import NextStep
from orchestrator.plan.host_version import raise_other_version
from orchestrator.plan.ranks import count_hosts, label_rank
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.stopped import FROM_ELSEWHERE, SIGNAL_CODE, make_stopped_outcome
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.remote.fleet import Fleet
from orchestrator.store.lookup import cluster_not_found, describe_deletion, find_current_job
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord

POLL_SECONDS = 0.1  # in which a process of this computer keeps more
_FOLLOWED_SECONDS = 3.0  # until the process that has started a program follows it


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
        if ending is None and setup:
            raise no_setup_error(record)
        if ending is not None and follow and not setup:
            record, chosen = _await_start(record, chosen)
        if ending is not None and not (chosen.started and follow and not setup):
            return replace(ending, step=describe_recorded_end(chosen)) if follow and chosen.state == "ended" else ending
    source, positions = choose_source(record, chosen), dict[str, int]()
    if source is OutputSource.BUCKET:
        _download(record, chosen, narrator)
    if source is not OutputSource.HOSTS:
        record, chosen = _give_copies(record, chosen, sink, positions, hosts=hosts, follow=follow, start=start)
        if is_absent(record):
            narrator.note(describe_copy(record))
        if not follow or chosen.state == "ended" or is_absent(record):
            step = describe_recorded_end(chosen) if follow else Done("")
            return CommandResult(step=step, outcomes=(), job_id=chosen.id, run_id=chosen.run_id)
    return _ask_hosts(record, chosen, sink, narrator, positions, hosts=hosts, follow=follow, start=start)


def _await_start(record: ClusterRecord, job: JobRecord) -> tuple[ClusterRecord, JobRecord]:
    """Return cluster and job when the program starts after its setup, or when no process starts it any more."""
    started = None
    while True:
        record, job, is_driven = _read_again(record, job)
        if job.state == "ended" or not is_driven:
            return record, job
        if job.started:
            started = started or time.monotonic()
            if choose_source(record, job) is OutputSource.KEPT or time.monotonic() - started > _FOLLOWED_SECONDS:
                return record, job
        time.sleep(POLL_SECONDS)


def _read_again(record: ClusterRecord, job: JobRecord) -> tuple[ClusterRecord, JobRecord, bool]:
    """Return cluster and job as they are now, and whether a process drives the job."""
    with open_reader(record.project) as reader:
        record = reader.clusters_by_uid([record.uid]).get(record.uid, record)
        job = next((one for one in reader.jobs(record) if one.id == job.id), job)
        return record, job, bool(reader.lease_holder(f"watch:{record.uid}/{job.id}"))


def _ask_hosts(
    record: ClusterRecord,
    job: JobRecord,
    sink: Sink,
    narrator: Narrator,
    positions: Mapping[str, int],
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart,
) -> CommandResult:
    """Give the logs of the hosts to `sink`, from the byte on up to which each was given before."""
    ranks = choose_ranks(record, job, job.ranks or range(len(record.hosts)), hosts)
    read = replace(record, hosts=tuple(host for host in record.hosts if host.rank in ranks))
    with open_reader(record.project) as reader:
        admit_here(reader, read, narrator)
        refuse_without_key(reader, read, narrator)
        fenced = fence_recorded_hosts(reader, record)
    attempt = find_attempt_folder(job).name
    with open_pins(narrator.note) as pins, Fleet(fenced, pins=pins) as fleet:
        if not follow:
            return _read_current(fleet, record.name, job, sink, ranks, start)
        begin = find_offsets(fleet, _folder(job), ranks, start)
        begun = {rank: at for rank in ranks if (at := positions.get(f"{attempt}/{rank}.log")) is not None}
        outcomes = follow_log(fleet, _folder(job), sink, ranks, begin.offsets | begun)
    refresh_cluster(record.name, narrator)
    step = _verdict(record.name, job, outcomes)
    return CommandResult(step=step, outcomes=outcomes, job_id=job.id, run_id=job.run_id)


def _download(record: ClusterRecord, job: JobRecord, narrator: Narrator) -> None:
    """Download what the bucket of the run has. A failure is only noted: then nothing is kept, which is an error."""
    from orchestrator.engine.operations.output_bucket import download_output

    try:
        download_output(job, open_project_bucket(job.bucket, record.project, task=job.task))
    except OrchError as error:
        narrator.note(f"the output in the bucket cannot be read: {error.what}")


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


def _give_copies(
    record: ClusterRecord,
    job: JobRecord,
    sink: Sink,
    positions: dict[str, int],
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart,
) -> tuple[ClusterRecord, JobRecord]:
    """Give what this computer keeps of a job's output to `sink`, while a process drives the job where it is followed.

    Args:
        record: The cluster.
        job: The job.
        sink: Receives blocks of output.
        positions: Receives the byte up to which each file was given.
        hosts: Ranks to read, or None for all.
        follow: Whether to continue until the job has ended.
        start: Where to begin in the log of each host.

    Returns:
        Cluster and job as they were before the last reading.

    Raises:
        NotFoundError: Nothing is kept.
    """
    is_driven = True
    while True:
        found = read_kept_output(record, job, setup=False, ranks=hosts or (), start=start, positions=positions)
        if found.ranks:
            choose_ranks(record, job, found.ranks, hosts)
        known = {host.rank: host for host in record.hosts}
        for part in found.parts:
            positions[part.file] = part.end
            sink(known.get(part.rank) or find_logged_host(part.rank), describe_missing(part.missing) + part.content)
        if found.complete and (not follow or job.state == "ended" or not is_driven):
            break
        if not found.parts:
            time.sleep(POLL_SECONDS)
        record, job, is_driven = _read_again(record, job)
    if not positions and (is_absent(record) or not follow):
        raise no_output_error(record, job)
    return record, job


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
