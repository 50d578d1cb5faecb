"""The end of a command: its result, the jobs that end with it, and the record when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.loop.checkpoints import has_checkpoint
from orchestrator.engine.loop.epoch import release_run
from orchestrator.engine.loop.finished_jobs import find_own_end
from orchestrator.engine.loop.queue import (
    end_jobs,
    list_waiting_jobs,
)
from orchestrator.engine.loop.results import (
    job_outcomes,
    upload_logs,
)
from orchestrator.engine.loop.session import Session
from orchestrator.engine.loop.stage_end import end_stopped_pipelines
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.ssh_aliases import keep_aliases_current
from orchestrator.exits import Exit
from orchestrator.messages import count_noun
from orchestrator.next_step import NextStep
from orchestrator.plan.desired import Cancel, Down, Run, Start, Stop
from orchestrator.plan.observed import FINAL_STATES, Outcome
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.store.lookup import RUNNING

if TYPE_CHECKING:
    pass


def leave_running(session: Session) -> CommandResult:
    """Return the result of a command that does not wait for its program."""
    job = session.job
    assert job is not None  # noqa: S101  # there is a job to leave running
    name = session.cluster.name
    watch = f"orch logs -f {name} {job.id}" if job.kind == "exec" else f"orch watch {name}"
    done = Done(f"job {job.id} runs on '{name}'; watch it: {watch}   end it: orch cancel {name} {job.id}")
    return CommandResult(step=done, outcomes=(), job_id=job.id, run_id=job.run_id)


def finish_command(session: Session, step: Done | GiveUp) -> CommandResult:
    """Return the result; upload the logs, and close the record when nothing is left."""
    outcomes = job_outcomes(session)
    if isinstance(session.desired, Cancel) and isinstance(step, Done):
        _record_cancelled_job(session, int(session.desired.folder.partition("-")[0]))
        _report_remaining_jobs(session)
    if session.job is not None:
        upload_logs(session)
    release_run(session)
    live = [intent for intent in session.store.intents(session.cluster) if intent.state not in FINAL_STATES]
    desired = session.desired
    over = isinstance(step, Done) or not isinstance(desired, Down)
    if isinstance(step, Done):
        _end_affected_jobs(session)
        if isinstance(desired, Cancel | Down | Stop):
            end_stopped_pipelines(session.store, session.cluster)
    if not live and over and _may_close(session):
        session.store.close_cluster(session.keeper.lease, session.cluster)
        keep_aliases_current(session.paths, session.store)
    job = session.job
    if job is None:
        return CommandResult(step=step, outcomes=outcomes)
    return CommandResult(
        step=step,
        outcomes=outcomes,
        job_id=job.id,
        run_id=job.run_id,
        attempts=session.store.ended_attempts(session.cluster, job.id),
        missing_output=session.memory.missing_output,
    )


def _record_cancelled_job(session: Session, number: int) -> None:
    """Record how a job ended that was to be cancelled: one that had ended by itself keeps its own result."""
    outcome = find_own_end(session, number)
    if outcome is not None:
        session.narrator.note(f"{outcome.what}; it had ended before the cancel")
    else:
        outcome = Outcome(status=Exit.INTERRUPTED, code="cancelled", what=f"job {number} was cancelled")
    session.store.record_outcome(session.cluster, number, outcome)


def _report_remaining_jobs(session: Session) -> None:
    """Report what continues after a cancel: jobs that run beside the cancelled one, or wait behind it."""
    name, jobs = session.cluster.name, session.store.jobs(session.cluster)
    for job in jobs:
        if job.state in RUNNING:
            session.narrator.note(f"job {job.id} ({job.kind}) continues to run on '{name}'")
    if queued := [job.id for job in jobs if job.state == "queued"]:
        session.narrator.note(f"job {queued[0]} is next in the queue: orch queue {name}")


def _end_affected_jobs(session: Session) -> None:
    """Record the end of the cluster's jobs that this command implies."""
    store, cluster, name = session.store, session.cluster, session.cluster.name
    match session.desired:
        case Down():
            message = f"cluster '{name}' was taken down"
            end_jobs(
                store,
                cluster,
                message,
                lambda job: resume_or_launch(name, has_checkpoint(session, job)),
                waiting=True,
                begun=True,
            )
        case Stop():
            end_jobs(
                store,
                cluster,
                f"cluster '{name}' was stopped",
                lambda job: NextStep(
                    f"orch start {name}", f"then: {resume_or_launch(name, has_checkpoint(session, job))}"
                ),
                waiting=False,
                begun=True,
            )
            if waiting := list_waiting_jobs(store, cluster, 0):
                session.narrator.note(f"{count_noun(len(waiting), 'job')} left in the queue until: orch start {name}")
        case Start():
            store.set_desired_state(cluster, "up")  # also when it was up already
        case _:
            pass


def _may_close(session: Session) -> bool:
    """Return whether nothing more is to come on this record: neither machines nor, for a run, a waiting job."""
    desired, job = session.desired, session.job
    if isinstance(desired, Run) and job is not None and list_waiting_jobs(session.store, session.cluster, job.id):
        return False
    if isinstance(desired, Run):
        return desired.create or desired.teardown is TeardownPolicy.DOWN
    return isinstance(desired, Down)
