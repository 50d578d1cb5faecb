"""The result of a command while another one, which has or wants the lease, ends its job or its cluster."""

from __future__ import annotations

from math import inf

from orchestrator.engine.loop.queue import job_step, overtaken_step
from orchestrator.engine.loop.results import upload_logs
from orchestrator.engine.loop.session import Session
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.state.lease import PATIENCE
from orchestrator.plan.desired import Run
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

YIELD_SECONDS = 0.5  # seconds that a lease stays free for a command that polls it ten times a second


def superseded_result(store: Store, ready: PreparedCommand) -> CommandResult | None:
    """Return how a continued job ended meanwhile, or None.

    A continued job never creates its cluster again, nor starts it when it was stopped. When it ended while this
    command waited for the lease, that is its result: it is never opened a second time.
    """
    number = ready.desired.job_id if isinstance(ready.desired, Run) else None
    cluster = store.cluster(ready.cluster)
    step = overtaken_step(store, ready.cluster, cluster, ready.continued_uid, ready.desired, number)
    if step is None and cluster is not None and number is not None:
        job = store.job(cluster, number)
        step = job_step(job) if job.state == "ended" else None
    return CommandResult(step=step, outcomes=(), job_id=number) if step is not None else None


def overtaken_result(session: Session, living: ClusterRecord | None) -> CommandResult | None:
    """Return the result when another command took the cluster down or stopped it while the lease was free."""
    job = session.job
    number = job.id if job is not None else None
    step = overtaken_step(session.store, session.cluster.name, living, session.cluster.uid, session.desired, number)
    if step is None:
        return None
    upload_logs(session)
    past = session.store.ended_attempts(session.cluster, job.id) if job is not None else ()
    return CommandResult(
        step=step, outcomes=(), job_id=number, run_id=job.run_id if job is not None else "", attempts=past
    )


def yield_to_down(session: Session, living: ClusterRecord | None) -> CommandResult | None:
    """Give the lease to a command that wants to take the cluster down; return the result it records for our job.

    A watcher may get the lease before that command does, and must not report another end. None when no `down` is
    requested, or when no command took the lease, or the one that took it failed: then `decide` handles it.
    """
    until = session.now() + PATIENCE
    while _should_yield(session, living) and session.now() < until:
        session.keeper.release()
        session.services.clock.sleep(YIELD_SECONDS)
        session.keeper.hold(inf)
        living = session.store.cluster(session.cluster.name)
        if (early := overtaken_result(session, living)) is not None:
            return early
    return None


def _should_yield(session: Session, living: ClusterRecord | None) -> bool:
    if living is None or living.desired_state != "down" or not isinstance(session.desired, Run) or session.job is None:
        return False
    job = session.store.job(session.cluster, session.job.id)
    # `down` ends a job that was not started before it gets the lease: that result is reported as well.
    return job.state != "ended" or (job.code == "cancelled" and not job.started)
