"""Jobs that ended while no process watched, and jobs that block a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.clock import SteadyClock
from orchestrator.engine.loop.addresses import admit_before_contact
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.names import host_job_name, slice_token
from orchestrator.errors import ConflictError, OrchError
from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, HostJob, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.ranks import count_hosts
from orchestrator.plan.stopped import (
    FROM_ELSEWHERE,
    SIGNAL_CODE,
    describe_failed_rank,
    make_bucketless_outcome,
    make_stopped_outcome,
)
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.slices import SliceState
from orchestrator.store.job_end import HostRun
from orchestrator.store.records import JobRecord, NewJob

_FIX_BUCKET = "shows its output; fix the bucket, then the same launch"


def record_finished_jobs(session: Session, *, except_digest: str = "") -> None:
    """Record the end of every started job that has ended on all its hosts meanwhile.

    Args:
        session: The command.
        except_digest: Digest of the job that is continued: `decide` judges its end, with its budgets.
    """
    open_jobs = [job for job in session.store.jobs(session.cluster) if job.state != "ended" and job.started]
    open_jobs = [job for job in open_jobs if job.digest != except_digest]
    for job, states in _read_states(session, open_jobs):
        outcome = _make_outcome(session, job, states)
        if outcome is not None:
            session.store.record_outcome(
                session.cluster, job.id, outcome, run=measure_host_run(session, states, complete=True)
            )


def measure_host_run(session: Session, states: Sequence[HostJob], *, complete: bool) -> HostRun | None:
    """Return for how long hosts have run a job; None where none reports it, or where time is simulated.

    Args:
        session: The command.
        states: The job on its hosts.
        complete: Whether these are all of them.
    """
    seconds = [state.ran for state in states if state.ran is not None]
    if not seconds or not isinstance(session.services.clock, SteadyClock):
        return None
    ended = complete and len(seconds) == len(states) and all(state.phase is JobPhase.FINISHED for state in states)
    return HostRun(seconds=max(seconds), ended=ended)


def find_own_end(session: Session, number: int) -> Outcome | None:
    """Return how a job ended whose cancel found nothing to end; None where the cancel ended it, or no host reports."""
    job = session.store.job(session.cluster, number)
    for _, states in _read_states(session, [job] if job.started and job.state != "ended" else []):
        if all(state.ended_by is not EndedBy.CANCEL for state in states):
            return _make_outcome(session, job, states)
    return None


def _read_states(session: Session, jobs: list[JobRecord]) -> Iterator[tuple[JobRecord, tuple[HostJob, ...]]]:
    """Yield the jobs whose hosts all answer, with their states there."""
    live = [i for i in session.store.intents(session.cluster) if i.state is IntentState.ACCEPTED]
    if not jobs or not live:
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
    for job in jobs:
        states = hands.read_job(host_job_name(job.cluster_uid, f"{job.id}-a{job.attempt}"), job.ranks)
        if not states.failed:
            yield job, states.jobs


def _make_outcome(session: Session, job: JobRecord, states: tuple[HostJob, ...]) -> Outcome | None:
    """Return how a job ended, as its hosts report; None while it runs. What ended it goes before its exit status."""
    if not states or any(state.phase in (JobPhase.RUNNING, JobPhase.ABSENT) for state in states):
        return None
    own = [state for state in states if state.ended_by is None]
    bad = [state for state in own if state.phase is JobPhase.LOST or state.exit_code != 0]
    if not bad or any(state.ended_by is EndedBy.LIMIT for state in states):
        name = session.cluster.name
        shows = NextStep(f"orch logs {name} {job.id}", "shows its output")
        back = resume_or_launch(name, None) if job.bucket else shows
        return make_stopped_outcome(f"job {job.id}", states, back) or Outcome(
            status=Exit.OK, code="ok", what=f"job {job.id} succeeded on {count_hosts(len(states))}"
        )
    if without := next((state for state in bad if state.bucketless), None):
        shows = NextStep(f"orch logs {session.cluster.name} {job.id}", _FIX_BUCKET)
        return make_bucketless_outcome(job.id, without, shows)
    if lost := [state for state in bad if state.phase is JobPhase.LOST]:
        what = f"job {job.id} vanished on rank {lost[0].rank}"
        return Outcome(status=Exit.HOST_LOST, code="host-lost", what=what)
    bad = [state for state in bad if not state.lost_peer] or bad
    culprit = next((state for state in bad if state.exit_code not in FROM_ELSEWHERE), bad[0])
    code = culprit.exit_code or 1
    return Outcome(
        status=code,
        code=SIGNAL_CODE if code in FROM_ELSEWHERE else "program-failed",
        what=describe_failed_rank(job.id, culprit.rank, code),
        why=culprit.last_line,
    )


def refuse_if_busy(session: Session, new: NewJob) -> JobRecord | None:
    """Return the unfinished job that `new` repeats, or None.

    Commands (exec) run beside each other; a launch or resume needs the cluster for itself.

    Raises:
        ConflictError: Another job blocks it.
    """
    if new.kind == "exec":
        begun = [job for job in session.store.jobs(session.cluster) if job.kind == "exec" and job.state != "ended"]
        return next((job for job in begun if job.digest == new.digest), None)  # of an order that is carried out again
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
        if same.started or not same.watch:  # else the turn of a job that was queued has come
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
