"""What a run leaves in its bucket beside checkpoints, its task and its logs, and each host's outcome."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator.cloud_access import CloudAccess
from orchestrator.engine.loop.follow import LogFiles
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.kept_log import copy_log, read_cut
from orchestrator.engine.state.names import host_job_name
from orchestrator.errors import OrchError, StorageError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.messages import to_one_line
from orchestrator.paths import load_paths
from orchestrator.remote.host_operations import HostOperations
from orchestrator.slices import SliceState
from orchestrator.store.records import JobRecord

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

# Machines that cost money must end: `down` and `stop` spend no more on logs that are not here yet.
LOG_SECONDS = 20.0
STOP_SECONDS = 2.0  # that a download gets to stop at that deadline
RECENT_JOBS = 5  # logs of earlier jobs are not looked for


def job_outcomes(session: Session) -> tuple[HostOutcome, ...]:
    """Return one outcome per host in rank order, for the last program or failed step; empty when there was none."""
    return tuple(sorted(session.memory.outcomes, key=lambda outcome: outcome.rank))


def open_writable_bucket(uri: str, access: CloudAccess) -> Bucket:
    """Open the bucket and check that it can be written, before a machine costs money.

    Raises:
        OrchError: The storage errors.
    """
    from orchestrator.storage.bucket import Bucket

    bucket = Bucket.open(uri, access)
    bucket.check_access(write=True)
    return bucket


def upload_task(bucket: Bucket, job: JobRecord, report: Callable[[str], None]) -> None:
    """Store the task beside its checkpoints, so that any computer can resume the run.

    Reports the command that does so, or that the record there is not the one of this installation.
    """
    from orchestrator.engine.preparation.bucket_record import holds_record, record_digest
    from orchestrator.storage.checkpoints import put_task

    if put_task(bucket, job.run_id, job.task.encode()):
        if _is_in_own_folder(bucket):
            return
        digest = record_digest(job.task)
        report(f"on another computer: orch resume {job.run_id} --bucket {quote(bucket.uri)} --expect {digest}")
        return
    try:
        problem = "" if holds_record(bucket, job.run_id, job.task) else "it differs from the record here"
    except StorageError as error:
        problem = to_one_line(error.why)
    if problem:
        report(f"{bucket.uri_of(job.run_id)}/task.json was changed, and is not used here: {problem}")


def _is_in_own_folder(bucket: Bucket) -> bool:
    """Return whether the bucket is in the folder of this orch, as in a rehearsal: no other computer reads it."""
    scheme, _, path = bucket.uri.partition("://")
    return scheme == "file" and Path(path).is_relative_to(load_paths().state.parent)


def upload_logs(session: Session) -> None:
    """Copy logs and stacks to <bucket>/<run id>/logs/<attempt>/<rank>.log and .stacks; a failure is only noted."""
    job = session.job
    if job is None or not job.bucket:
        return
    root = session.paths.logs(session.cluster.uid, job.id)
    files = sorted((*root.glob("attempt-*/*.log"), *root.glob("attempt-*/*.stacks")))
    if not files:
        return
    from orchestrator.storage.bucket import Bucket

    try:
        bucket = Bucket.open(job.bucket, session.find_access(job))
        for file in files:
            upload_log(bucket, file, f"{job.run_id}/logs/{file.parent.name}/{file.name}")
    except OrchError as error:
        session.narrator.note(f"the logs stay in {root}: {error}")


def upload_log(bucket: Bucket, file: Path, path: str) -> None:
    """Upload a log, or stacks. Of a log without its middle, the file .cut beside it says where the rest belongs."""
    if file.suffix != ".log" or read_cut(file) is None:
        bucket.upload_file(file, path)
        return
    with tempfile.NamedTemporaryFile(prefix="orch-log-") as copy:  # its hole would be uploaded as zeros
        copy_log(file, copy)
        copy.flush()
        bucket.upload_file(Path(copy.name), path)
    bucket.upload_file(file.with_suffix(".cut"), str(PurePosixPath(path).with_suffix(".cut")))


def download_remaining_logs(session: Session) -> None:
    """Download what jobs have printed and no process followed, before their hosts end or stop.

    Best effort until a deadline: hosts that do not answer must not delay a teardown or a stop. A failure is only noted.
    """
    record = session.store.cluster(session.cluster.name)
    jobs = [job for job in session.store.jobs(session.cluster) if job.started][-RECENT_JOBS:]
    if record is None or record.last_state != SliceState.READY or not record.hosts or not jobs:
        return
    deadline = time.monotonic() + LOG_SECONDS
    operations = session.services.host_operations(session.fence(record.hosts), session.pins)
    try:
        for job in reversed(jobs):
            folder = session.paths.logs(session.cluster.uid, job.id) / f"attempt-{job.attempt:04d}"
            problem = _LogDownload(operations, job, folder).run_until(deadline)
            if problem:
                session.narrator.note(f"the log of job {job.id} is incomplete here: {problem}")
    finally:
        operations.close()


class _LogDownload:
    """The download of one job's log from where its local copy ends, in a thread that a deadline can stop."""

    def __init__(self, operations: HostOperations, job: JobRecord, folder: Path) -> None:
        self._operations, self._job, self._folder = operations, job, folder
        self._done = threading.Event()
        self._problem = ""
        self._missing: dict[int, int] = {}  # bytes by rank

    def run_until(self, deadline: float) -> str:
        """Return what is wrong, or ""."""
        worker = threading.Thread(target=self._guarded, daemon=True, name=f"log-{self._job.id}")
        worker.start()
        worker.join(max(0.0, deadline - time.monotonic()))
        if not worker.is_alive():
            return self._problem
        self._done.set()
        worker.join(STOP_SECONDS)
        return f"its hosts gave not all of it within {LOG_SECONDS:.0f} s"

    def _guarded(self) -> None:
        try:
            self._download()
        except Exception as error:  # whatever fails here, the teardown goes ahead and the note names it
            self._problem = str(error) or type(error).__name__

    def _download(self) -> None:
        name = host_job_name(self._job.cluster_uid, f"{self._job.id}-a{self._job.attempt}")
        report = self._operations.read_job(name, self._job.ranks)
        if report.failed:
            self._problem = f"rank {report.failed[0].rank}: {report.failed[0].verdict}"
        files = LogFiles(self._folder, len(report.jobs))
        try:
            kept = files.offsets([state.rank for state in report.jobs])
            sizes = {state.rank: state.log_bytes for state in report.jobs}
            self._missing = {rank: size - kept[rank] for rank, size in sizes.items() if size > kept[rank]}

            def write(host: HostAddress, block: bytes) -> None:
                files.write(host.rank, block)
                self._missing[host.rank] -= len(block)
                if all(left <= 0 for left in self._missing.values()):
                    self._done.set()

            if ranks := tuple(self._missing):
                self._operations.follow_job(name, write, kept, ranks, stop=self._done)
        finally:
            files.close()
