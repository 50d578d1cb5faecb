"""What a run leaves in its bucket beside checkpoints: its task and its logs; and each host's outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.session import Session
from orchestrator.errors import OrchError
from orchestrator.hosts import HostOutcome
from orchestrator.store.records import JobRecord

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket


def job_outcomes(session: Session) -> tuple[HostOutcome, ...]:
    """One per host, in rank order, for the last program or the step that failed; empty when there was none."""
    return tuple(sorted(session.memory.outcomes, key=lambda outcome: outcome.rank))


def open_bucket(uri: str) -> Bucket:
    """The bucket, checked for writing before a machine is paid for. Raises the storage errors."""
    from orchestrator.storage.bucket import Bucket

    bucket = Bucket.open(uri)
    bucket.check(write=True)
    return bucket


def leave_task(bucket: Bucket, job: JobRecord) -> None:
    """Put the task beside its checkpoints, so that any computer can resume the run."""
    from orchestrator.storage.checkpoints import put_task

    put_task(bucket, job.run_id, job.task.encode())


def archive_logs(session: Session) -> None:
    """Copy logs and stacks to <bucket>/<run id>/logs/<attempt>/<rank>.log, .stacks. A failure is said, not fatal."""
    job = session.job
    if job is None or not job.bucket:
        return
    root = session.paths.logs(session.cluster.uid, job.id)
    files = sorted((*root.glob("attempt-*/*.log"), *root.glob("attempt-*/*.stacks")))
    if not files:
        return
    from orchestrator.storage.bucket import Bucket

    try:
        bucket = Bucket.open(job.bucket)
        for file in files:
            bucket.upload_file(file, f"{job.run_id}/logs/{file.parent.name}/{file.name}")
    except OrchError as error:
        session.narrator.note(f"the logs stay in {root}: {error}")
