"""Ask before what a bucket holds decides which code runs: a task record, or a checkpoint that its run did not sign."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.engine.preparation.checkpoint_review import CheckpointReview
    from orchestrator.engine.preparation.record_review import RecordReview


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConsent:
    """What the command line agrees to, before any question.

    Attributes:
        expected: The digest that the record must have; "" for none.
        trust_bucket: Run whatever the record says, and load checkpoints whoever wrote them.
        allowed: What of this computer the record may use, as it names it.
        preview: Ask nothing.
    """

    expected: str = ""
    trust_bucket: bool = False
    allowed: tuple[str, ...] = ()
    preview: bool = False

    def check_options(self, bucket: str | None) -> None:
        """Raise UserError for options that cannot be meant."""
        if self.expected and not re.fullmatch(r"sha256:[0-9a-f]{64}", self.expected):
            raise UserError(
                "--expect: this is not the digest of a task record",
                "one is sha256: and 64 digits from 0 to f",
                "copy it from the launch: it prints the whole command",
            )
        if bucket is None and (self.expected or self.allowed):
            raise UserError(
                "--expect and --allow go with --bucket",
                "without it the record of this installation is used",
                "add --bucket URI, or leave them out",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the plan."""
        trusted = "what the bucket holds is used, whoever wrote it: --trust-bucket"
        return (trusted,) if self.trust_bucket else ()

    def __call__(self, review: RecordReview) -> None:
        """Return when all that the review lists is agreed to.

        Raises:
            UntrustedRecordError: It is not, and no one can be asked.
            OrchError: The answer is no.
        """
        if self.expected and review.record.digest != self.expected:
            raise review.refuse_other_digest(self.expected)
        if review.matches:
            return
        write_stderr(*review.lines())
        asks = can_ask() and not self.preview
        if self.trust_bucket or self.expected:
            pass
        elif not asks:
            raise review.refuse_record()
        else:
            _confirm("run what this record says?")
        missing = tuple(use for use in review.local if use.name not in self.allowed)
        if missing and not asks:
            raise review.refuse_local(missing)
        if missing:
            _confirm("let it use what is listed of this computer?")

    def agree_to_load(self, review: CheckpointReview) -> None:
        """Return when it is agreed that the program loads checkpoints which its run did not sign.

        Raises:
            UntrustedCheckpointError: It is not, and no one can be asked.
            OrchError: The answer is no.
        """
        write_stderr(*review.lines())
        if self.trust_bucket:
            return
        if not can_ask() or self.preview:
            raise review.refuse()
        _confirm("load them?")


def _confirm(question: str) -> None:
    if not click.confirm(question, default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")
