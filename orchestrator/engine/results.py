"""What is left of a job when it is over: one outcome per host, and its logs in the bucket."""

from __future__ import annotations

from orchestrator.engine.session import Session
from orchestrator.errors import OrchError
from orchestrator.hosts import HostOutcome


def job_outcomes(session: Session) -> tuple[HostOutcome, ...]:
    """One per host, in rank order, for the last program or the step that failed; empty when there was none."""
    if session.follower is not None:
        session.follower.finish(2.0)
        session.memory.outcomes = tuple(session.follower.outcomes.values()) or session.memory.outcomes
    return tuple(sorted(session.memory.outcomes, key=lambda outcome: outcome.rank))


def archive_logs(session: Session) -> None:
    """Copy the logs that were followed to <bucket>/<run id>/logs/<attempt>/<rank>.log. A failure is said, not fatal."""
    job = session.job
    if job is None or not job.bucket:
        return
    root = session.paths.logs(session.cluster.name, job.id)
    files = sorted(root.glob("attempt-*/*.log"))
    if not files:
        return
    from orchestrator.storage.bucket import Bucket

    try:
        bucket = Bucket.open(job.bucket)
        for file in files:
            bucket.upload_file(file, f"{job.run_id}/logs/{file.parent.name}/{file.name}")
    except OrchError as error:
        session.narrator.note(f"the logs stay in {root}: {error}")
