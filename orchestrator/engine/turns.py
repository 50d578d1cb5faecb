"""Jobs that share a cluster: whose turn it is, what becomes of those behind, and what others made of the cluster."""

from __future__ import annotations

from orchestrator.engine.ready import Ready
from orchestrator.exits import Exit
from orchestrator.plan.desired import After, Desired, Run
from orchestrator.plan.observed import Outcome
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store

ENGINE = "engine"  # JobRecord.watch of a job that unattended engines drive


def behind(store: Store, cluster: ClusterRecord, number: int) -> tuple[JobRecord, ...]:
    """Jobs that wait for their turn after this one, and that an engine will take."""
    return tuple(job for job in store.jobs(cluster) if job.id > number and job.watch and job.state != "ended")


def after(store: Store, cluster: ClusterRecord, job: JobRecord, asked: After) -> After:
    """What becomes of the machines now that `job` is over. asked: by the command that drives it.

    They stay for the jobs behind it. The last of them takes them down when that was asked of any job since the queue
    was last empty: a job that came before the one ahead of it had ended inherits its --down.
    """
    if behind(store, cluster, job.id):
        return After.KEEP
    if asked is After.DOWN:
        return asked
    ahead = [one for one in store.jobs(cluster) if one.kind != "exec" and one.id < job.id and _counted(one)]
    for earlier in reversed(ahead):
        if job.after == After.DOWN:
            break
        if earlier.ended is None or earlier.ended <= job.created:
            return After.KEEP
        job = earlier
    return After(job.after)


def overtaken(store: Store, name: str, uid: str, desired: Desired, number: int | None) -> Done | GiveUp | None:
    """How it ends when another command took the cluster down or stopped it meanwhile; None when it is as it was."""
    if not isinstance(desired, Run):
        return None
    living = store.cluster(name)
    if living is None or living.uid != uid:
        words, back = f"cluster '{name}' was taken down by another command", f"orch launch … -c {name}"
    elif living.wanted == "stopped" and desired.create:
        words, back = f"cluster '{name}' is stopped", f"orch start {name}   then: orch resume {name}"
    else:
        return None
    job = next((one for one in _jobs(store, uid, living, name) if one.id == number), None)
    if job is None or job.state != "ended":
        return GiveUp("conflict", Exit.CONFLICT, words, next_step=back)
    return result(job)


def result(job: JobRecord) -> Done | GiveUp:
    """How a job that is over ended."""
    if job.status == Exit.OK:
        return Done(job.what)
    return GiveUp(job.code, job.status or Exit.FAILURE, job.what, job.why, job.next_step)


def end_jobs(store: Store, cluster: ClusterRecord, words: str, next_step: str, *, waiting: bool, begun: bool) -> int:
    """Record the end of jobs whose machines go. waiting: those that never started; begun: the others. How many."""
    chosen = [job for job in store.jobs(cluster) if job.state != "ended" and (begun if job.started else waiting)]
    for job in chosen:
        how = "ended" if job.started else "is not started"
        store.conclude(
            cluster, job.id, Outcome(Exit.INTERRUPTED, "cancelled", f"job {job.id} {how}: {words}", "", next_step)
        )
    return len(chosen)


def driven_elsewhere(store: Store, ready: Ready) -> bool:
    """Whether this very job is on record and somebody drives it: then it is worth waiting for long."""
    cluster, new = store.cluster(ready.cluster), ready.job
    if cluster is None or new is None:
        return False
    same = [
        job for job in store.jobs(cluster) if job.state != "ended" and (job.kind, job.digest) == (new.kind, new.digest)
    ]
    return any(is_watched(store, cluster, job) for job in same)


def is_watched(store: Store, cluster: ClusterRecord, job: JobRecord) -> bool:
    lease = store.acquire(f"watch:{cluster.uid}/{job.id}", "looking who watches")
    if not isinstance(lease, Lease):
        return True
    store.release(lease)
    return False


def _counted(job: JobRecord) -> bool:
    return job.started or job.code not in ("cancelled", "abandoned")


def _jobs(store: Store, uid: str, living: ClusterRecord | None, name: str) -> tuple[JobRecord, ...]:
    if living is not None and living.uid == uid:
        return store.jobs(living)
    gone = ClusterRecord(uid, name, 0.0, "down", (), "{}", "", "", 0.0)  # jobs are found by the uid alone
    return store.jobs(gone)
