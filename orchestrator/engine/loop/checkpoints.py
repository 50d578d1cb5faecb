"""Look-up of a run's checkpoint in its bucket, when a job ends without success, for its next step."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.loop.session import Session
from orchestrator.errors import OrchError
from orchestrator.plan.observed import Observed
from orchestrator.store.records import JobRecord


def note_checkpoint(session: Session, observed: Observed) -> Observed:
    """Return the observation with what the bucket holds of the session's run."""
    return observed if session.job is None else replace(observed, saved=has_checkpoint(session, session.job))


def has_checkpoint(session: Session, job: JobRecord) -> bool | None:
    """Return whether the bucket of a job holds a complete checkpoint of its run; None where it cannot be read."""
    if not job.bucket:
        return False
    from orchestrator.storage.bucket import Bucket
    from orchestrator.storage.checkpoints import find_newest_complete

    try:
        bucket = Bucket.open(job.bucket, session.find_access(job))
        return find_newest_complete(bucket, job.run_id).checkpoint is not None
    except OrchError:
        return None
