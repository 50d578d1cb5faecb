"""Jobs that share a cluster: their order, what happens to the waiting ones, and interference of other commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.plan.desired import Desired, Run
from orchestrator.plan.observed import Outcome
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store

TAKEN_OVER = "taken-over"  # code of a job whose machines, or whose run, another installation has
ABSENT = "host-lost"  # code of a job whose machines are absent
ENGINE = "engine"  # JobRecord.watch of a job that unattended engines drive

_STATUS = {TAKEN_OVER: Exit.CONFLICT, ABSENT: Exit.HOST_LOST}


def list_waiting_jobs(store: Store, cluster: ClusterRecord, number: int) -> tuple[JobRecord, ...]:
    """Return the jobs behind job `number` that an unattended engine will run."""
    return tuple(job for job in store.jobs(cluster) if job.id > number and job.watch and job.state != "ended")


def choose_after_job(store: Store, cluster: ClusterRecord, job: JobRecord, requested: TeardownPolicy) -> TeardownPolicy:
    """Return what happens to the machines now that `job` is over.

    They stay for the jobs behind it. The last of those takes them down when that was asked of any job since the queue
    was last empty: a job that came before the one ahead of it had ended inherits its --down.

    Args:
        store: The open store.
        cluster: The cluster's record.
        job: The job that ended.
        requested: What the command that drives it requested.
    """
    if list_waiting_jobs(store, cluster, job.id):
        return TeardownPolicy.KEEP
    if requested is TeardownPolicy.DOWN:
        return requested
    ahead = [one for one in store.jobs(cluster) if one.kind != "exec" and one.id < job.id and _counted(one)]
    for earlier in reversed(ahead):
        if job.after_end == TeardownPolicy.DOWN:
            break
        if earlier.ended is None or earlier.ended <= job.created:
            return TeardownPolicy.KEEP
        job = earlier
    return TeardownPolicy(job.after_end)


def overtaken_step(
    store: Store, name: str, living: ClusterRecord | None, uid: str, desired: Desired, number: int | None
) -> Done | GiveUp | None:
    """Return the last step when another command took the cluster down or stopped it meanwhile, else None.

    Args:
        store: The records.
        name: The cluster's name.
        living: The existing cluster of this name, as just read.
        uid: The cluster at work on.
        desired: What is desired of it.
        number: The job at work on.
    """
    if not isinstance(desired, Run):
        return None
    if living is None or living.uid != uid:
        message = f"cluster '{name}' was taken down by another command"
        back = NextStep(words="the same launch makes it again")
    elif living.desired_state == "stopped" and desired.create:
        message, back = f"cluster '{name}' is stopped", NextStep(f"orch start {name}", "then the same command again")
    else:
        return None
    job = next((one for one in _jobs(store, uid, living, name) if one.id == number), None)
    if job is None or job.state != "ended":
        return GiveUp(code="conflict", status=Exit.CONFLICT, what=message, next_step=back)
    return job_step(job)


def job_step(job: JobRecord) -> Done | GiveUp:
    """Return the last step of a job that is over, by its record."""
    if job.status == Exit.OK:
        return Done(job.what)
    return GiveUp(code=job.code, status=job.status or Exit.FAILURE, what=job.what, why=job.why, next_step=job.next_step)


def end_jobs(
    store: Store,
    cluster: ClusterRecord,
    reason: str,
    find_next: Callable[[JobRecord], NextStep],
    *,
    waiting: bool,
    begun: bool,
    code: str = "cancelled",
) -> int:
    """Record the end of jobs whose machines are ended, and return their number.

    Args:
        store: The open store.
        cluster: The cluster's record.
        reason: Why they end.
        find_next: Returns what the user can do about a job.
        waiting: Whether jobs that never started end too.
        begun: Whether jobs that started end too.
        code: The code of their outcome.
    """
    chosen = [job for job in store.jobs(cluster) if job.state != "ended" and (begun if job.started else waiting)]
    for number, outcome in make_outcomes(chosen, reason, find_next, code).items():
        store.record_outcome(cluster, number, outcome)
    return len(chosen)


def make_outcomes(
    jobs: Iterable[JobRecord], reason: str, find_next: Callable[[JobRecord], NextStep], code: str
) -> dict[int, Outcome]:
    """Return, by their numbers, the outcomes of jobs whose machines are ended or absent."""
    return {
        job.id: Outcome(
            status=_STATUS.get(code, Exit.INTERRUPTED),
            code=code,
            what=f"job {job.id} {'ended' if job.started else 'is not started'}: {reason}",
            why="",
            next_step=find_next(job),
        )
        for job in jobs
    }


def is_driven_elsewhere(store: Store, ready: PreparedCommand) -> bool:
    """Return whether this very job is on record and another process drives it: then waiting long is worth it."""
    cluster, new = store.cluster(ready.cluster), ready.job
    if cluster is None or new is None:
        return False
    same = [
        job for job in store.jobs(cluster) if job.state != "ended" and (job.kind, job.digest) == (new.kind, new.digest)
    ]
    return any(is_watched(store, cluster, job) for job in same)


def is_watched(store: Store, cluster: ClusterRecord, job: JobRecord) -> bool:
    """Return whether another process holds the watch lease of the job."""
    lease = store.acquire(f"watch:{cluster.uid}/{job.id}", "checking who watches")
    if not isinstance(lease, Lease):
        return True
    store.release(lease)
    return False


def _counted(job: JobRecord) -> bool:
    return job.started or job.code not in ("cancelled", "abandoned")


def _jobs(store: Store, uid: str, living: ClusterRecord | None, name: str) -> tuple[JobRecord, ...]:
    if living is not None and living.uid == uid:
        return store.jobs(living)
    deleted = ClusterRecord(
        uid=uid,
        name=name,
        created=0.0,
        desired_state="down",
        hosts=(),
        host_contents="{}",
        summary="",
        last_state="",
        last_seen=0.0,
    )  # jobs are found by the uid alone
    return store.jobs(deleted)
