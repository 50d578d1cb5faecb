"""Ask before a task record from a bucket is used: which program it runs, and what of this computer it would use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import can_ask, write_stderr
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.engine.preparation.record_review import RecordReview


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConsent:
    """What the command line agrees to, before any question.

    Attributes:
        expected: The digest that the record must have; "" for none.
        trust_bucket: Run whatever the record says.
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
        if bucket is None and (self.expected or self.trust_bucket or self.allowed):
            raise UserError(
                "--expect, --trust-bucket and --allow go with --bucket",
                "without it the record of this installation is used",
                "add --bucket URI, or leave them out",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the plan."""
        trusted = "the task record of the bucket is used, whatever it says (--trust-bucket)"
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


def _confirm(question: str) -> None:
    if not click.confirm(question, default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")
