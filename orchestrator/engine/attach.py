"""Reading and following the logs of a job, from its hosts, or from the copy kept here when they are gone."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine.identity import host_job
from orchestrator.engine.known import open_reader
from orchestrator.engine.look import refresh
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.ready import Ending
from orchestrator.errors import NotFoundError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.paths import paths
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.remote.fleet import Fleet
from orchestrator.store.records import ClusterRecord, JobRecord

Sink = Callable[[HostAddress, bytes], None]


def follow_logs(
    cluster: str,
    job: int | None,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    tail_bytes: int | None = None,
) -> Ending:
    """Give each host's log to `sink`. follow: until the job has ended everywhere; its result is then recorded.

    tail_bytes: only so many from the end of what is there. Raises NotFoundError when there is no such job or log.
    """
    record, chosen = _find(cluster, job)
    if not record.hosts:
        return _kept(record, chosen, sink, hosts)
    with Fleet(record.hosts) as fleet:
        ranks = tuple(rank for rank in chosen.ranks or range(len(record.hosts)) if hosts is None or rank in hosts)
        if not follow:
            return _now(fleet, chosen, sink, ranks, tail_bytes)
        outcomes = _follow(fleet, chosen, sink, ranks, tail_bytes)
    refresh(cluster, narrator)
    return Ending(_verdict(cluster, chosen, outcomes), outcomes, chosen.id, chosen.run_id)


def _find(cluster: str, job: int | None) -> tuple[ClusterRecord, JobRecord]:
    with open_reader() as reader:
        record = reader.cluster(cluster) or reader.gone_cluster(cluster)
        if record is None:
            raise NotFoundError(f"there is no cluster '{cluster}'", next_step="orch status")
        jobs = [one for one in reader.jobs(record) if (one.id == job if job is not None else True)]
    if not jobs:
        raise NotFoundError(f"no job {job or ''} on '{cluster}'".replace("  ", " "), next_step=f"orch status {cluster}")
    return record, jobs[-1]


def _folder(job: JobRecord) -> str:
    return host_job(job.cluster_uid, f"{job.id}-a{job.attempt}")


def _log_path(job: JobRecord) -> str:
    return f'"$HOME/.orch/jobs/{_folder(job)}/log"'


def _now(fleet: Fleet, job: JobRecord, sink: Sink, ranks: tuple[int, ...], tail: int | None) -> Ending:
    """What is there at this moment."""
    path = _log_path(job)
    command = f"test -e {path} && " + (f"tail -c {tail} {path}" if tail is not None else f"cat {path}")
    result = fleet.run(command, ranks=ranks, on_output=sink)
    failed = [outcome for outcome in result.outcomes if not outcome.ok]
    if not failed:
        return Ending(Done(""), (), job.id, job.run_id)
    lost = any(outcome.failure is not None for outcome in failed)
    step = GiveUp(
        "host-lost" if lost else "not-found",
        Exit.HOST_LOST if lost else Exit.NOT_FOUND,
        f"no log of job {job.id} on {len(failed)} host(s)",
        failed[0].detail or "its program was not started there",
    )
    return Ending(step, tuple(failed), job.id, job.run_id)


def _follow(
    fleet: Fleet, job: JobRecord, sink: Sink, ranks: tuple[int, ...], tail: int | None
) -> tuple[HostOutcome, ...]:
    from orchestrator.remote.jobs import follow, status

    folder = _folder(job)
    offsets: dict[int, int] = {}
    if tail is not None:
        offsets = {state.rank: max(0, state.log_bytes - tail) for state in status(fleet, folder, ranks=ranks).jobs}
    return follow(fleet, folder, sink, offsets=offsets, ranks=ranks).outcomes


def _verdict(cluster: str, job: JobRecord, outcomes: tuple[HostOutcome, ...]) -> Done | GiveUp:
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        return Done(f"job {job.id} ended well on {len(outcomes)} host(s)")
    first = failed[0]
    lost = first.failure in (Failure.LOST, Failure.FROZEN, Failure.UNREACHABLE, Failure.REFUSED)
    status = first.status if first.status is not None else Exit.HOST_LOST
    return GiveUp(
        "host-lost" if lost else "program-failed",
        status,
        f"job {job.id} on rank {first.rank}: {first.verdict}",
        first.last_line or first.detail,
        f"orch resume {cluster}",
    )


def _kept(record: ClusterRecord, job: JobRecord, sink: Sink, hosts: tuple[int, ...] | None) -> Ending:
    """The copies that were made here while somebody followed."""
    folder = paths().logs(record.uid, job.id)
    files = sorted(folder.glob("attempt-*/*.log"))
    if not files:
        where = f"look in the bucket: orch storage ls {job.bucket}/{job.run_id}/logs/" if job.bucket else ""
        raise NotFoundError(f"the hosts of '{record.name}' are gone, and no copy of the log is here", "", where)
    for file in files:
        rank = int(file.stem)
        if hosts is None or rank in hosts:
            sink(_gone_host(rank), file.read_bytes())
    return Ending(Done(""), (), job.id, job.run_id)


def _gone_host(rank: int) -> HostAddress:
    from pathlib import Path

    nowhere = Path()
    return HostAddress(rank, f"gone.{rank}", "gone", 22, "", nowhere, nowhere, "gone")
