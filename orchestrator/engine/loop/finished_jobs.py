"""Jobs that ended while no process watched, and jobs that block a new one."""

from __future__ import annotations

from orchestrator.engine.loop.addresses import admit_before_contact
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.names import host_job_name, slice_token
from orchestrator.errors import ConflictError, OrchError
from orchestrator.exits import Exit
from orchestrator.hosts import HostJob, JobPhase
from orchestrator.plan.decide_job import STOPPED_BY_US, describe_exit
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.ranks import count_hosts, label_rank
from orchestrator.slices import SliceState
from orchestrator.store.records import JobRecord, NewJob


def record_finished_jobs(session: Session, *, except_digest: str = "") -> None:
    """Record the end of every started job that has ended on all its hosts meanwhile.

    Args:
        session: The command.
        except_digest: Digest of the job that is continued: `decide` judges its end, with its budgets.
    """
    open_jobs = [job for job in session.store.jobs(session.cluster) if job.state != "ended" and job.started]
    open_jobs = [job for job in open_jobs if job.digest != except_digest]
    live = [i for i in session.store.intents(session.cluster) if i.state is IntentState.ACCEPTED]
    if not open_jobs or not live:
        return
    intent = live[-1]
    try:
        view = session.provider_of(intent).observe(intent.name, slice_token(session.cluster, intent))
    except OrchError:
        return  # unknown now; the job stays open
    if view.state is not SliceState.READY:
        return
    admit_before_contact(session, intent)
    hands = session.host_operations(view.hosts)
    for job in open_jobs:
        states = hands.read_job(host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}"), job.ranks)
        if not states.failed:
            _conclude(session, job, states.jobs)


def _conclude(session: Session, job: JobRecord, states: tuple[HostJob, ...]) -> None:
    if not states or any(state.phase in (JobPhase.RUNNING, JobPhase.ABSENT) for state in states):
        return
    bad = [state for state in states if state.phase is JobPhase.LOST or state.exit_code != 0]
    if not bad:
        outcome = Outcome(status=Exit.OK, code="ok", what=f"job {job.id} succeeded on {count_hosts(len(states))}")
    elif bad[0].phase is JobPhase.LOST:
        outcome = Outcome(status=Exit.HOST_LOST, code="host-lost", what=f"job {job.id} vanished on rank {bad[0].rank}")
    else:
        culprit = next((state for state in bad if state.exit_code not in STOPPED_BY_US), bad[0])
        code = culprit.exit_code or 1
        what = f"job {job.id} failed on {label_rank(culprit.rank)} (rank {culprit.rank}): {describe_exit(code)}"
        outcome = Outcome(status=code, code="program-failed", what=what, why=culprit.last_line)
    session.store.record_outcome(session.cluster, job.id, outcome)


def refuse_if_busy(session: Session, new: NewJob) -> JobRecord | None:
    """Return the unfinished job that `new` repeats, or None.

    Commands (exec) run beside each other; a launch or resume needs the cluster for itself.

    Raises:
        ConflictError: Another job blocks it.
    """
    if new.kind == "exec":
        return None
    open_jobs = [job for job in session.store.jobs(session.cluster) if job.state != "ended" and job.kind != "exec"]
    same = next((job for job in open_jobs if job.kind == new.kind and job.digest == new.digest), None)
    name = session.cluster.name
    others = [job for job in open_jobs if same is None or job.id < same.id]
    blocking = [job for job in others if job.started or job.watch]
    if blocking:
        words = "still runs" if blocking[0].started else "is queued before it"
        raise ConflictError(
            f"job {blocking[0].id} (run {blocking[0].run_id}) {words} on '{name}'",
            "two concurrent launches on one cluster would share its chips",
            f"queue behind it: add --detach   watch it: orch watch {name}\nend it: orch cancel {name} {blocking[0].id}",
        )
    if same is not None:
        session.narrator.note(f"resuming job {same.id} (run {same.run_id}), which is unfinished")
        return same
    for job in open_jobs:
        if not job.started:
            given_up = Outcome(
                status=Exit.INTERRUPTED,
                code="abandoned",
                what=f"job {job.id} was never started; another one took its place",
            )
            session.store.record_outcome(session.cluster, job.id, given_up)
    return None
