"""Checkpoints of an own program that lack its run's signature: for a person to agree to before hosts load them.

The files of a program may hold code: pickles run some when they are loaded. So a program loads what its own run has
signed (trainer/program/trust.py), and whoever resumes it decides about the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.engine.preparation.local_uses import escape_unprintable
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import OrchError, UntrustedCheckpointError
from orchestrator.formatting import format_size
from orchestrator.storage.signed_checkpoints import UnsignedCheckpoint, find_unsigned
from orchestrator.task.model import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReview:
    """Checkpoints that a resume would load although their writer is unknown.

    Attributes:
        place: URI of the folder of checkpoints.
        has_key: Whether the key of the run is on record here.
        unsigned: Newest first.
        agreed: Digests of manifests to which someone agreed before.
    """

    run_id: str
    place: str
    has_key: bool
    unsigned: tuple[UnsignedCheckpoint, ...]
    agreed: tuple[str, ...]

    @property
    def steps(self) -> dict[str, int]:
        """The step of each by the digest of its manifest."""
        return {one.digest: one.checkpoint.step for one in self.unsigned}

    @property
    def summary(self) -> str:
        """The fault, on one line."""
        newest = self.unsigned[0].checkpoint.step
        return f"checkpoint {newest} of run {self.run_id} does not carry the signature of its run"

    def lines(self) -> list[str]:
        """Return the checkpoints, and what it means to load them."""
        listed = [
            f"  step {one.checkpoint.step}: {format_size(one.checkpoint.size)}, "
            f"{'another signature' if one.checkpoint.manifest.signature else 'no signature'}, "
            f"manifest sha256:{one.digest}"
            for one in self.unsigned
        ]
        why = "an own program signs what it saves, so others wrote these, or starts of it without orch"
        if not self.has_key:
            why = "the key of this run is not on record here: the store was lost, or the run is of another computer"
        return [
            f"checkpoints in {escape_unprintable(self.place)} without the signature of run {self.run_id}:",
            *listed,
            why,
            "whoever can write to the bucket can have put code into them, and hosts run that as the program loads them",
        ]

    def refuse(self) -> UntrustedCheckpointError:
        """Return the error for checkpoints to which no one agreed."""
        return UntrustedCheckpointError(
            self.summary,
            "whoever can write to the bucket can have put code into it, and hosts run that as they load it",
            "if you know that it is yours: the same with --trust-bucket, not through a service\n"
            f"to resume from an older one: orch storage rm -r {escape_unprintable(self.unsigned[0].checkpoint.uri)}",
        )


ConsentToCheckpoints: TypeAlias = Callable[[CheckpointReview], None]
"""Returns when someone agreed to load what the review lists; raises OrchError otherwise."""


def refuse_unsigned(review: CheckpointReview) -> None:
    """Refuse every checkpoint without a signature.

    Raises:
        UntrustedCheckpointError: Always.
    """
    raise review.refuse()


def review_checkpoints(task: Task, record: str, run_id: str, project: str) -> tuple[CheckpointReview, str]:
    """Return the unsigned checkpoints from which a run would resume, and a note.

    A bucket that cannot be read from here is no error: the program checks the same on its hosts.

    Args:
        task: Of the run.
        record: The task as it is on record.
        run_id: The run.
        project: In which it is; "" for that of the environment.
    """
    uri, note = task.checkpoint.bucket.rstrip("/"), ""
    with open_reader(project) as reader:
        key, agreed = reader.run_key(run_id), reader.trusted_checkpoints(run_id)
    found: tuple[UnsignedCheckpoint, ...] = ()
    try:
        found = find_unsigned(open_project_bucket(uri, project, task=record), run_id, key.encode(), agreed)
    except OrchError as error:
        note = f"the checkpoints of {run_id} cannot be read from here ({error.what}); its hosts load signed ones alone"
    place = f"{uri}/{run_id}/checkpoints"
    return CheckpointReview(run_id=run_id, place=place, has_key=bool(key), unsigned=found, agreed=agreed), note
