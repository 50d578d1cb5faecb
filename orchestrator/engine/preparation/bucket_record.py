"""The task record of a run as its bucket holds it: read once and within bounds, and not trusted.

Whoever can write to a bucket can change what `task.json` says. So a record is used without a question only when it is
the one that this installation has; `record_review.py` describes any other, and the command line asks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import StorageError, UserError
from orchestrator.messages import to_one_line
from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

MOST_TASK_BYTES = 1 << 20
"""The bytes of the largest record that is written to a bucket, and read from one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRecord:
    """A run's record in a bucket.

    Attributes:
        bucket: URI of the bucket that it was read from.
        text: The record as it was read; nothing reads it a second time.
        attempt: The last attempt that the bucket knows of.
    """

    run_id: str
    bucket: str
    text: str
    task: Task
    attempt: int

    @property
    def digest(self) -> str:
        """The digest of the record."""
        return record_digest(self.text)


def record_digest(text: str) -> str:
    """Return the digest of a task record, as the launch prints it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def refuse_large_record(text: str) -> None:
    """Raise UserError for a record that no one would read back from its bucket."""
    if (size := len(text.encode())) > MOST_TASK_BYTES:
        raise UserError(
            "the task is too large to be recorded in its bucket",
            f"it has {size:,} bytes, and {MOST_TASK_BYTES:,} are read from a bucket",
            "move long scripts and data into files of the workdir",
        )


def read_bucket_record(bucket: str, run_id: str) -> BucketRecord:
    """Read the record of a run from its bucket.

    Raises:
        NotFoundError: There is no such run.
        StorageError: What is there is no record of a task.
        OrchError: What Bucket methods raise.
    """
    from orchestrator.engine.state.identities import open_project_bucket

    opened = open_project_bucket(bucket)
    text, task = _read_task(opened, run_id)
    return BucketRecord(
        run_id=run_id, bucket=opened.uri, text=text, task=task, attempt=_find_last_attempt(opened, run_id)
    )


def holds_record(bucket: Bucket, run_id: str, text: str) -> bool:
    """Return whether the bucket's record of the run is, in its meaning, this one.

    Raises:
        OrchError: As `read_bucket_record`.
    """
    found, task = _read_task(bucket, run_id)
    return found == text or task == Task.from_json(text)


def _read_task(bucket: Bucket, run_id: str) -> tuple[str, Task]:
    from orchestrator.storage.checkpoints import get_task

    place = bucket.uri_of(f"{run_id}/task.json")
    try:
        text = get_task(bucket, run_id, MOST_TASK_BYTES).decode()
        return text, Task.from_json(text)
    except UnicodeDecodeError as error:
        raise _no_record(place, f"it is not valid UTF-8 (byte {error.start})") from error
    except TaskError as error:
        first = error.problems[0]
        raise _no_record(place, to_one_line(f"{first.what}: {first.why}" if first.why else first.what)) from error


def _no_record(place: str, why: str) -> StorageError:
    return StorageError(f"{place} is not a task record", why, "restore the object, or launch the task's own file again")


def _find_last_attempt(bucket: Bucket, run_id: str) -> int:
    from orchestrator.storage.epochs import read_claim

    held = read_claim(bucket, run_id).epoch
    attempts = [held.attempt if held is not None else 1]
    for folder in bucket.list_dir(f"{run_id}/metrics").folders:
        number = folder.rsplit("-", 1)[-1]
        attempts += [int(number)] if number.isascii() and number.isdigit() and len(number) < 7 else []
    return max(attempts)
