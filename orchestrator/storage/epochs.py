"""Who drives a run: epoch.json and beat.json in its folder of the bucket, read and claimed by the engine.

<run id>/epoch.json    moved by compare-and-swap at each start of a job: see trainer/checkpoint/epoch.py
<run id>/beat.json     changes about every BEAT_SECONDS while the run is driven
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.errors import NotFoundError, StorageError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.objects import Version
from trainer.checkpoint.epoch import BEAT, EPOCH, utc_timestamp
from trainer.checkpoint.epoch import BEAT_SECONDS as BEAT_SECONDS  # noqa: PLC0414  # re-exported for the engine
from trainer.checkpoint.epoch import Epoch as Epoch  # noqa: PLC0414  # likewise

_MOST_BYTES = 64 << 10  # of epoch.json, which has 300


@dataclass(frozen=True, slots=True)
class Claim:
    """The present content of epoch.json, with its version for the next claim; both None before the first start."""

    epoch: Epoch | None = None
    version: Version | None = None

    @property
    def number(self) -> int:
        """The number of the epoch; 0 before the first start."""
        return self.epoch.epoch if self.epoch is not None else 0


def read_claim(bucket: Bucket, run_id: str) -> Claim:
    """Return who holds the run."""
    path = f"{run_id}/{EPOCH}"
    info = bucket.head(path)  # before the content: a change in between makes the next claim fail, and read again
    if info is None:
        return Claim()
    try:
        return Claim(Epoch.from_json(bucket.get_bounded(path, _MOST_BYTES)), info.version)
    except NotFoundError:
        return Claim()
    except ValueError as error:
        step = f"who drives the run now? copy it aside, then: orch storage rm {bucket.uri_of(path)}"
        raise StorageError(f"{bucket.uri_of(path)} cannot be read", str(error), step) from error


def write_claim(bucket: Bucket, run_id: str, new: Epoch, before: Claim) -> bool:
    """Claim the run, or mark its end, if no one changed epoch.json since `before` was read; return whether it is so."""
    path = f"{run_id}/{EPOCH}"
    if before.version is None:
        return bucket.put_if_absent(path, new.to_json())
    return bucket.replace_if(path, new.to_json(), before.version)


def make_epoch(before: Claim, attempt: int, installation: str, host: str, job: str) -> Epoch:
    """Return the epoch after `before`, claimed now."""
    time = utc_timestamp()
    return Epoch(epoch=before.number + 1, attempt=attempt, installation=installation, host=host, job=job, time=time)


def mark_ended(bucket: Bucket, run_id: str, job: str, installation: str) -> None:
    """Record that the driver of the run has ended, if it is this job: the next one need not wait for its beat."""
    claim = read_claim(bucket, run_id)
    epoch = claim.epoch
    if epoch is not None and (epoch.job, epoch.installation, epoch.ended) == (job, installation, ""):
        write_claim(bucket, run_id, replace(epoch, ended=utc_timestamp()), claim)


def read_beat(bucket: Bucket, run_id: str) -> Version | None:
    """Return the state of beat.json; None if there is none."""
    info = bucket.head(f"{run_id}/{BEAT}")
    return info.version if info is not None else None


def write_beat(bucket: Bucket, run_id: str, epoch: Epoch) -> None:
    """Show that the run is driven."""
    bucket.put(f"{run_id}/{BEAT}", epoch.to_beat("engine"))
