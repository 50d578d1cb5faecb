"""What a task record from a bucket would do, in words: for a person to agree to before anything of it is used.

Nothing here reads a file, a variable or a host that the record names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from shlex import quote
from typing import TypeAlias, cast

from orchestrator.engine.preparation.bucket_record import BucketRecord
from orchestrator.errors import UntrustedRecordError
from orchestrator.options import list_options
from orchestrator.task.driver_sections import list_driver_options
from orchestrator.task.infra import LOCAL, SIMULATED
from orchestrator.task.likely_secrets import mask_likely_secrets
from orchestrator.task.model import Task

LONGEST_LINE = 2_000  # characters that are shown
MOST_LINES = 500


@dataclass(frozen=True, slots=True)
class LocalUse:
    """Something of this computer that a record would use.

    Attributes:
        name: As the record writes it, and as `--allow` names it.
        purpose: What happens to it.
    """

    name: str
    purpose: str


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
        local = [f"  {_shown(use.name)}: {use.purpose}" for use in self.local]
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
            f"{_shown(first.name)}: {first.purpose}{more}",
            "if that is meant, add: " + " ".join(f"--allow {quote(escape_unprintable(use.name))}" for use in missing),
        )


ConsentToRecord: TypeAlias = Callable[[RecordReview], None]
"""Returns when someone agreed to all that the review lists; raises OrchError otherwise."""


def review_record(record: BucketRecord, known: Task | None) -> RecordReview:
    """Compare a record with the one on record here, and list what of this computer it would use."""
    local = () if known == record.task else tuple(dict.fromkeys(_list_local_uses(record.task, record.bucket)))
    return RecordReview(record=record, known=known, local=local)


def refuse_unknown_record(review: RecordReview) -> None:
    """Refuse every record but the one that this installation has.

    Raises:
        UntrustedRecordError: It is another one.
    """
    if not review.matches:
        raise review.refuse_record()


def escape_unprintable(text: str) -> str:
    """Return the text on one line, each character that a terminal would not show written out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _list_local_uses(task: Task, bucket: str) -> Iterator[LocalUse]:
    """Yield what of this computer a task would use, as far as the task itself names it."""
    if any(one.infra.provider in (LOCAL, SIMULATED) for one in task.choices):
        yield LocalUse("infra:local", "setup and run are executed on this computer, as you")
    if isinstance(task.workdir, str):
        yield LocalUse(task.workdir, f"the folder {_absolute(task.workdir)} is copied to the hosts")
    for mount in task.file_mounts:
        if not mount.from_bucket:
            use = f"{_absolute(mount.source)} is copied to the hosts, as {_shown(mount.target)}"
            yield LocalUse(mount.source, use)
        elif mount.source.startswith("file://"):
            yield LocalUse(mount.source, f"its files are copied, as {_shown(mount.target)}")
    place = task.checkpoint.bucket
    if place.startswith("file://") and place.rstrip("/") != bucket.rstrip("/"):
        yield LocalUse(place, "checkpoints, metrics and logs are written there")
    for name in task.secret_names:
        yield LocalUse(name, "the value of this variable of your environment is sent to the hosts")
    for host in task.hosts:
        yield LocalUse(str(host), "a login there with your SSH agent, keys and ~/.ssh/config")
        if host.key:
            yield LocalUse(host.key, "this private key is used to log in")
        if host.jump:
            yield LocalUse(host.jump, "a login there, as jump host, with your SSH agent, keys and ~/.ssh/config")
    yield from _list_driver_uses(task)


def _list_driver_uses(task: Task) -> Iterator[LocalUse]:
    """Yield what of this computer the settings of the drivers would use."""
    for name, options in list_driver_options().items():
        for option in list_options(options.kind):
            value = getattr(task.settings(name), option.key) if option.spec.where == "settings" else ""
            if value and option.spec.hops:
                yield LocalUse(value, "a login there, as jump host, with your SSH agent, keys and ~/.ssh/config")
            elif value and option.spec.local_use:
                yield LocalUse(value, option.spec.local_use)


def _absolute(path: str) -> str:
    return _shown(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  # Path raises for unknown users


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
            yield f"  {_shown(path)}:"
            changed = unified_diff(old.shown.split("\n"), new.shown.split("\n"), n=1, lineterm="")
            yield from (f"    {_shown(line)}" for line in list(changed)[2:])
            continue
        if old is not None:
            yield from _format_field("  - ", path, old.shown)
        if new is not None:
            yield from _format_field("  + ", path, new.shown)


def _format_field(lead: str, path: str, text: str) -> Iterator[str]:
    first, *more = text.split("\n")
    if not more:
        yield f"{lead}{_shown(path)}: {_shown(first)}"
        return
    yield f"{lead}{_shown(path)}:"
    yield from (f"{lead}  | {_shown(line)}" for line in (first, *more))


def _shown(line: str) -> str:
    """Return one line with nothing in it that a terminal would act on, and of bounded length."""
    shown = escape_unprintable(line)
    left = len(shown) - LONGEST_LINE
    return shown if left <= 0 else f"{shown[:LONGEST_LINE]}… ({left:,} more characters)"
