"""Compare runs: their settings side by side with those that differ first, their speed, and what a result cost.

The settings are those of the task on record, so they are complete also when a bucket cannot be read. A setting that a
task does not name has its default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from typing import Any, cast

from orchestrator.documents.curves import CurveReader, Point
from orchestrator.documents.run_view import RunView, read_run
from orchestrator.documents.runs import run_as_item
from orchestrator.errors import UserError
from orchestrator.formatting import format_utc
from orchestrator.storage.bucket import Bucket
from orchestrator.store.read import Reader
from orchestrator.task.likely_secrets import mask_likely_secrets

MOST_COMPARED = 8
_LONGEST = 120  # characters of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison.

    Attributes:
        letter: Its short name in the comparison, from A on.
        reached: Its first point with the loss that all have reached; None without one.
    """

    letter: str
    view: RunView
    reached: Point | None = None

    @property
    def last(self) -> Point | None:
        """Its newest point."""
        return self.view.points[-1] if self.view.points else None

    @property
    def lowest_loss(self) -> float | None:
        """The lowest loss of all its points; None without one."""
        return min((point.loss for point in self.view.points if point.loss is not None), default=None)

    @property
    def tokens_per_s(self) -> float | None:
        """The median over its points; None when not known."""
        return _median([point.tokens_per_s for point in self.view.points])

    @property
    def mfu(self) -> float | None:
        """The median over its points; None when not known."""
        return _median([point.mfu for point in self.view.points])

    @property
    def seconds_to_reach(self) -> float | None:
        """From the opening of its first job to `reached`."""
        return None if self.reached is None else max(self.reached.time - self.view.run.jobs[0].created, 0.0)

    @property
    def dollars_to_reach(self) -> float | None:
        """What was paid until `reached`; None when it is not known."""
        spent = self.view.spending
        return spent.dollars_until(self.reached.time) if self.reached is not None and spent.known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting over all runs; None where a run does not name it."""

    name: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether not all runs have the same value."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Some runs side by side.

    Attributes:
        settings: Those that differ first, each group by name.
        common_loss: The lowest loss that every run with a curve has reached; None for fewer than two such runs.
    """

    runs: tuple[ComparedRun, ...]
    settings: tuple[SettingRow, ...]
    common_loss: float | None


def list_compared(run_ids: Sequence[str]) -> list[str]:
    """Return the runs that are compared, each once. Raises UserError for too many."""
    names = list(dict.fromkeys(run_ids))
    if len(names) > MOST_COMPARED:
        raise UserError(
            f"{len(names)} runs are too many to compare",
            f"at most {MOST_COMPARED} are compared",
            "name fewer runs",
        )
    return names


def compare_runs(
    store: Reader, run_ids: Sequence[str], now: float, open_bucket: Callable[[str, str], Bucket], curves: CurveReader
) -> Comparison:
    """Read runs and compare them, each named once, in the order of their ids.

    Args:
        store: Open.
        run_ids: At most MOST_COMPARED.
        now: Epoch seconds.
        open_bucket: Returns the bucket of a URI, as it is reached in a project.
        curves: Keeps what was read of the runs' files before.

    Raises:
        UserError: These are too many.
        NotFoundError: No such run is on record.
    """
    views = [read_run(store, name, now, open_bucket, curves) for name in list_compared(run_ids)]
    runs = [ComparedRun(letter=chr(ord("A") + number), view=view) for number, view in enumerate(views)]
    lowest = [one.lowest_loss for one in runs if one.lowest_loss is not None]
    common = max(lowest) if len(lowest) > 1 else None
    return Comparison(
        runs=tuple(ComparedRun(letter=one.letter, view=one.view, reached=_find_reached(one, common)) for one in runs),
        settings=_compare_settings(views),
        common_loss=common,
    )


def _find_reached(one: ComparedRun, loss: float | None) -> Point | None:
    if loss is None:
        return None
    return next((point for point in one.view.points if point.loss is not None and point.loss <= loss), None)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _compare_settings(views: Sequence[RunView]) -> tuple[SettingRow, ...]:
    found = [dict(list_settings(view.run.last.task)) for view in views]
    names = dict.fromkeys(name for own in found for name in own)
    rows = [SettingRow(name=name, values=tuple(own.get(name) for own in found)) for name in names]
    return tuple(sorted(rows, key=lambda row: (not row.differs, row.name)))


def list_settings(task: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a recorded task with dotted names, likely secrets masked."""
    yield from _flatten("", json.loads(mask_likely_secrets(task) or "{}"))


def _flatten(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in cast("dict[str, Any]", value).items():
            yield from _flatten(f"{name}.{key}" if name else key, part)
    else:
        yield name, _write_value(value)


def _write_value(value: Any) -> str:
    """Write a value on one line. A long one, such as a script, is cut and has its digest, which shows a difference."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    first, _, more = text.partition("\n")
    if not more.strip() and len(first) <= _LONGEST:
        return first
    return f"{first[:_LONGEST]}… ({len(text):,} characters, sha256:{sha256(text.encode()).hexdigest()[:8]})"


def comparison_as_json(comparison: Comparison, now: float) -> dict[str, Any]:
    """Return a comparison as in data/comparison.schema.json."""
    return {
        "version": 1,
        "kind": "comparison",
        "now": format_utc(now),
        "common_loss": comparison.common_loss,
        "runs": [
            {
                "letter": one.letter,
                "run": run_as_item(one.view.run),
                "step": one.last.step if one.last is not None else None,
                "loss": one.last.loss if one.last is not None else None,
                "lowest_loss": one.lowest_loss,
                "tokens_per_s": one.tokens_per_s,
                "mfu": one.mfu,
                "dollars_per_million_tokens": _round(one.view.dollars_per_million_tokens),
                "dollars_to_common_loss": _round(one.dollars_to_reach),
                "seconds_to_common_loss": _round(one.seconds_to_reach),
                "bucket_problem": one.view.bucket_problem or None,
            }
            for one in comparison.runs
        ],
        "settings": [
            {"name": row.name, "differs": row.differs, "values": list(row.values)} for row in comparison.settings
        ],
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
