"""What a task record from a bucket would do, in words: for a person to agree to before anything of it is used.

Nothing here reads a file, a variable or a host that the record names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from shlex import quote
from typing import TypeAlias, cast

from orchestrator.engine.preparation.bucket_record import BucketRecord
from orchestrator.engine.preparation.local_uses import LocalUse, escape_unprintable, list_local_uses, show_line
from orchestrator.errors import UntrustedRecordError
from orchestrator.task.likely_secrets import mask_likely_secrets
from orchestrator.task.model import Task

MOST_LINES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReview:
    """A record that was read from a bucket, before anything of it is used.

    Attributes:
        known: The task that this installation has on record for the run, if it has one.
        local: What of this computer the record would use, if it is not the known one.
    """

    record: BucketRecord
    known: Task | None
    local: tuple[LocalUse, ...]

    @property
    def matches(self) -> bool:
        """Whether the record is the one that this installation has."""
        return self.known == self.record.task

    @property
    def summary(self) -> str:
        """What is wrong with the record, on one line."""
        where = escape_unprintable(self.record.bucket)
        if self.known is None:
            return f"the task record of run {self.record.run_id} in {where} is not known to this installation"
        return f"the task record of run {self.record.run_id} in {where} is not the one that this installation has"

    def lines(self) -> list[str]:
        """Return the record, or how it differs from the known one, field by field; no control characters."""
        after = _list_fields(self.record.task)
        head = "it says:" if self.known is None else "differences (- on record here, + in the bucket):"
        shown = list(_describe(after)) if self.known is None else list(_compare(_list_fields(self.known), after))
        if len(shown) > MOST_LINES:
            left = f"  ({len(shown) - MOST_LINES:,} more lines are not shown; the whole record: orch storage cp "
            left += f"{quote(escape_unprintable(self.record.bucket))}/{self.record.run_id}/task.json record.json)"
            shown = [*shown[:MOST_LINES], left]
        local = [f"  {show_line(use.name)}: {use.purpose}" for use in self.local]
        return [
            self.summary,
            f"  digest: {self.record.digest}",
            head,
            *shown,
            *(["of this computer it would use:", *local] if local else []),
        ]

    def refuse_record(self) -> UntrustedRecordError:
        """Return the error for a record to which no one agreed."""
        agree = "--expect sha256:..., the digest that the launch printed; or --trust-bucket, whatever the record says"
        known = (
            f"orch resume {self.record.run_id}   without --bucket: the record of this installation\nor "
            if self.known
            else ""
        )
        return UntrustedRecordError(
            self.summary, "it decides which program runs, and no one agreed to it", f"{known}add {agree}"
        )

    def refuse_other_digest(self, expected: str) -> UntrustedRecordError:
        """Return the error for a record that has another digest than the user expects."""
        return UntrustedRecordError(
            f"the task record of run {self.record.run_id} is not the expected one",
            f"its digest is {self.record.digest}, expected is {escape_unprintable(expected)}",
            "find out who changed it before anything of it runs; nothing was done",
        )

    def refuse_local(self, missing: tuple[LocalUse, ...]) -> UntrustedRecordError:
        """Return the error for uses of this computer to which no one agreed."""
        first = missing[0]
        more = f", and {len(missing) - 1} more, listed above" if len(missing) > 1 else ""
        return UntrustedRecordError(
            f"the task record of run {self.record.run_id} would use what is on this computer",
            f"{show_line(first.name)}: {first.purpose}{more}",
            "if that is meant, add: " + " ".join(f"--allow {quote(escape_unprintable(use.name))}" for use in missing),
        )


ConsentToRecord: TypeAlias = Callable[[RecordReview], None]
"""Returns when someone agreed to all that the review lists; raises OrchError otherwise."""


def review_record(record: BucketRecord, known: Task | None) -> RecordReview:
    """Compare a record with the one on record here, and list what of this computer it would use."""
    local = () if known == record.task else tuple(dict.fromkeys(list_local_uses(record.task, record.bucket)))
    return RecordReview(record=record, known=known, local=local)


def refuse_unknown_record(review: RecordReview) -> None:
    """Refuse every record but the one that this installation has.

    Raises:
        UntrustedRecordError: It is another one.
    """
    if not review.matches:
        raise review.refuse_record()


@dataclass(frozen=True, slots=True)
class _Field:
    """A value of a record, and how it is shown: masked where it is likely a secret."""

    value: str
    shown: str


def _list_fields(task: Task) -> dict[str, _Field]:
    """Return every field of a task by its path."""
    text = task.to_json()
    values, masked = _flatten(json.loads(text)), _flatten(json.loads(mask_likely_secrets(text)))
    return {path: _Field(value, masked[path]) for path, value in values.items()}


def _flatten(value: object, path: str = "") -> dict[str, str]:
    if not isinstance(value, dict | list) or not value:
        return {path: value.rstrip("\n") if isinstance(value, str) else json.dumps(value)}
    if isinstance(value, dict):
        items = [(str(key), one) for key, one in cast("Mapping[object, object]", value).items()]
    else:
        items = [(str(number), one) for number, one in enumerate(cast("Sequence[object]", value))]
    found: dict[str, str] = {}
    for key, one in items:
        found |= _flatten(one, f"{path}.{key}" if path else key)
    return found


def _describe(fields: Mapping[str, _Field]) -> Iterator[str]:
    for path, field in fields.items():
        yield from _format_field("  ", path, field.shown)


def _compare(before: Mapping[str, _Field], after: Mapping[str, _Field]) -> Iterator[str]:
    for path in {**before, **after}:
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old is not None and new is not None and "\n" in old.shown + new.shown:
            yield f"  {show_line(path)}:"
            changed = unified_diff(old.shown.split("\n"), new.shown.split("\n"), n=1, lineterm="")
            yield from (f"    {show_line(line)}" for line in list(changed)[2:])
            continue
        if old is not None:
            yield from _format_field("  - ", path, old.shown)
        if new is not None:
            yield from _format_field("  + ", path, new.shown)


def _format_field(lead: str, path: str, text: str) -> Iterator[str]:
    first, *more = text.split("\n")
    if not more:
        yield f"{lead}{show_line(path)}: {show_line(first)}"
        return
    yield f"{lead}{show_line(path)}:"
    yield from (f"{lead}  | {show_line(line)}" for line in (first, *more))
