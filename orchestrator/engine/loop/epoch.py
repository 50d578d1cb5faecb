"""Holding a run in its bucket: one driver at a time, also of several computers that share no records.

Each start of a program claims the next epoch (orchestrator/storage/epochs.py). While the command works, a thread keeps
the run's beat and notices when another computer has claimed the run: then `decide` ends the job.
"""

from __future__ import annotations

import platform
import threading
from typing import TYPE_CHECKING

from orchestrator.engine.loop.session import Session
from orchestrator.errors import ConflictError, OrchError
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.store.records import JobRecord

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket
    from orchestrator.storage.epochs import Claim, Epoch

LOOK_SECONDS = 45  # a beat comes every 30 s
_TRIES = 20


class RunHold:
    """The hold of a job on its run, with the thread that shows it.

    Attributes:
        number: The epoch that this job claimed last; 0 before.
        attempt: The attempt for which it was claimed.
        taken_over: Who has claimed the run since, in words; "" while this job holds it.
    """

    def __init__(self, bucket: Bucket, installation: str, job: JobRecord, replaceable: int) -> None:
        """Take the run of the job; `replaceable` is the epoch that the first claim may follow."""
        self.number, self.attempt, self.taken_over = replaceable, 0, ""
        self._bucket, self._run_id, self._installation = bucket, job.run_id, installation
        self._job = job_key(job)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beat", daemon=True)

    def claim(self, attempt: int) -> bool:
        """Hold the run for this attempt; return False when another driver has claimed it since.

        Claiming twice for one attempt is one claim, so a command that was killed in between continues it.

        Raises:
            OrchError: The bucket fails.
        """
        from orchestrator.storage.epochs import make_epoch, read_claim, write_claim

        for _ in range(_TRIES):
            now = read_claim(self._bucket, self._run_id)
            epoch = now.epoch
            own = epoch is not None and (epoch.job, epoch.installation) == (self._job, self._installation)
            if epoch is not None and not own and epoch.epoch != self.number:
                self.taken_over = describe_take_over(self._run_id, epoch)
                return False
            if epoch is None or not own or epoch.ended or epoch.attempt != attempt:
                epoch = make_epoch(now, attempt, self._installation, platform.node(), self._job)
                if not write_claim(self._bucket, self._run_id, epoch, now):
                    continue
            self.number, self.attempt = epoch.epoch, attempt
            if not self._thread.is_alive() and not self._ended.is_set():
                self._thread.start()
            return True
        raise ConflictError(f"run {self._run_id}: its epoch.json changes too often", "", "the same command again")

    def find_saved_step(self) -> int | None:
        """Return the step of the run's newest complete checkpoint; None without one.

        Raises:
            OrchError: The bucket fails.
        """
        from orchestrator.storage.checkpoints import find_newest_complete

        newest = find_newest_complete(self._bucket, self._run_id).checkpoint
        return newest.step if newest is not None else None

    def close(self) -> None:
        """Stop the beat."""
        self._ended.set()

    def _beat(self) -> None:
        from orchestrator.storage import epochs

        while True:
            try:
                now = epochs.read_claim(self._bucket, self._run_id).epoch
                if now is not None and (now.job, now.installation) != (self._job, self._installation):
                    self.taken_over = describe_take_over(self._run_id, now)
                    return
                if now is not None:
                    epochs.write_beat(self._bucket, self._run_id, now)
            except OrchError:
                pass  # a bucket that stays away is reported by what needs it
            if self._ended.wait(epochs.BEAT_SECONDS):
                return


def job_key(job: JobRecord) -> str:
    """Return how epoch.json names a job of this installation."""
    return f"{job.cluster_uid}/{job.id}"


def look_for_driver(session: Session, bucket: Bucket, run_id: str, job: JobRecord | None, *, take_over: bool) -> Claim:
    """Return the claim that this command may follow, when no one else drives the run.

    Args:
        session: The command.
        bucket: Of the run.
        run_id: The run.
        job: The recorded job that is continued, if there is one.
        take_over: Whether to claim the run from a driver that is at work.

    Raises:
        ConflictError: Another one drives it: its beat changes.
    """
    from orchestrator.storage.epochs import read_beat, read_claim

    claim = read_claim(bucket, run_id)
    epoch = claim.epoch
    if epoch is None or epoch.ended or _is_over_here(session, epoch, job):
        return claim
    if take_over:
        session.narrator.note(
            f"run {run_id} was driven by {epoch.driver} since {epoch.time}, and is taken over: the bundled trainer "
            "stops there by itself; your own program, and what it writes to mounts, must be stopped there"
        )
        return claim
    first = read_beat(bucket, run_id)
    wait = Wait(on=WaitFor.PAUSE, reason=f"looking whether {epoch.driver} still drives run {run_id}", until=None)
    for second in range(LOOK_SECONDS):
        session.narrator.waiting(wait, second)
        session.services.clock.sleep(1.0)
        if read_beat(bucket, run_id) != first:
            raise ConflictError(
                f"run {run_id} is driven by {epoch.driver} since {epoch.time}",
                "its beat in the bucket changes; two drivers would train one run twice",
                f"end it there: orch cancel   or take it over: orch resume {run_id} --bucket {bucket.uri} --take-over",
            )
    return claim


def describe_take_over(run_id: str, epoch: Epoch) -> str:
    """Return the message of a job whose run another one has claimed."""
    return f"run {run_id} was taken over by {epoch.driver} at {epoch.time} (epoch {epoch.epoch})"


def release_run(session: Session) -> None:
    """Mark in the bucket that the cluster's last run has ended, if it has; a failure is only noted."""
    jobs = [job for job in session.store.jobs(session.cluster) if job.bucket and job.started]
    if not jobs or jobs[-1].state != "ended":
        return
    if session.hold is not None:
        session.hold.close()
    from orchestrator.storage.bucket import Bucket
    from orchestrator.storage.epochs import mark_ended

    job = jobs[-1]
    try:
        bucket = Bucket.open(job.bucket, session.find_access(job))
        mark_ended(bucket, job.run_id, job_key(job), session.store.installation)
    except OrchError as error:
        session.narrator.note(f"the end of run {job.run_id} is not marked in its bucket: {error}")


def _is_over_here(session: Session, epoch: Epoch, job: JobRecord | None) -> bool:
    """Return whether the epoch is of a job of this installation that is continued, or has ended."""
    if epoch.installation != session.store.installation:
        return False
    if job is not None and epoch.job == job_key(job):
        return True
    others = (one for cluster in session.store.clusters() for one in session.store.jobs(cluster))
    return not any(job_key(one) == epoch.job and one.state != "ended" for one in others)
