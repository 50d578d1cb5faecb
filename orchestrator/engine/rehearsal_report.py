"""What a rehearsal showed: when what happened, what was lost, whether the loss curve went on, what it would cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.plan.limits import dollars_spent
from orchestrator.plan.observed import Ended, Intent, Observed
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import EventRecord, JobRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """seconds: since the rehearsal began."""

    seconds: float
    what: str


@dataclass(frozen=True, slots=True)
class Resume:
    """From one attempt to the next. lost_steps, lost_seconds: work that was done twice; None when no steps were told.

    seconds: from the moment the loss was seen until the first new step (or the program's start). same_loss: of the
    steps that both attempts made, how many have the same loss to the last bit; repeated: how many there are.
    """

    attempt: int
    cause: str
    why: str
    seconds: float | None
    lost_steps: int | None
    lost_seconds: float | None
    repeated: int
    same_loss: int
    largest_difference: float


@dataclass(frozen=True, slots=True)
class Report:
    """status: of the task. dollars: the machine time of this rehearsal at list price; None when it is not known."""

    status: int | None
    what: str
    seconds: float
    moments: tuple[Moment, ...]
    resumes: tuple[Resume, ...]
    launcher_crashes: int
    dollars: float | None
    dollars_per_hour: float | None
    steps: int
    has_losses: bool

    @property
    def loss_continued(self) -> bool | None:
        """None when the program told no losses, or made no step twice."""
        repeated = sum(resume.repeated for resume in self.resumes)
        if not self.has_losses or not repeated:
            return None
        return sum(resume.same_loss for resume in self.resumes) == repeated


_Steps = dict[int, dict[str, Any]]


def read_report(database: Path, metrics: Path, cluster: str, crashes: int, now: float) -> Report:
    """From the rehearsal's own store and the trainer's metrics of every step."""
    with open_reader_at(database) as reader:
        record = reader.cluster(cluster) or reader.gone_cluster(cluster)
        events = reader.events(cluster, limit=100_000)
        jobs = reader.jobs(record) if record is not None else ()
        intents = reader.intents(record) if record is not None else ()
        ended = reader.ended(record, jobs[-1].id) if record is not None and jobs else ()
    by_attempt = _read_metrics(metrics)
    return _report(events, jobs, intents, ended, by_attempt, crashes, now)


def _report(
    events: tuple[EventRecord, ...],
    jobs: tuple[JobRecord, ...],
    intents: tuple[Intent, ...],
    ended: tuple[Ended, ...],
    steps: dict[int, _Steps],
    crashes: int,
    now: float,
) -> Report:
    began = events[0].at if events else now
    job = jobs[-1] if jobs else None
    last = events[-1].at if events else now
    prices = [intent.candidate.price_per_hour for intent in intents]
    return Report(
        status=job.status if job is not None else None,
        what=job.what if job is not None else "nothing was started",
        seconds=last - began,
        moments=tuple(Moment(event.at - began, event.what) for event in events if event.kind in _TOLD),
        resumes=tuple(_resume(one, steps, events) for one in ended),
        launcher_crashes=crashes,
        dollars=dollars_spent(Observed(now=last, intents=intents)),
        dollars_per_hour=prices[-1] if prices else None,
        steps=max((max(made) for made in steps.values() if made), default=0),
        has_losses=bool(steps),
    )


_TOLD = frozenset({"cluster", "intent", "attempt", "job", "trouble"})


def _resume(ended: Ended, steps: dict[int, _Steps], events: tuple[EventRecord, ...]) -> Resume:
    before, after = steps.get(ended.attempt, {}), steps.get(ended.attempt + 1, {})
    repeated = sorted(before.keys() & after.keys())
    differences = [abs(before[step]["loss"] - after[step]["loss"]) for step in repeated]
    lost: int | None = None
    seconds: float | None = None
    if before and after:
        lost = max(0, max(before) - min(after) + 1)
        seconds = sum(row["step_s"] for step, row in before.items() if step >= min(after))
    return Resume(
        attempt=ended.attempt,
        cause=str(ended.cause),
        why=ended.why,
        seconds=_recovery(ended, after, events),
        lost_steps=lost,
        lost_seconds=seconds,
        repeated=len(repeated),
        same_loss=sum(before[step]["loss_hex"] == after[step]["loss_hex"] for step in repeated),
        largest_difference=max(differences, default=0.0),
    )


def _recovery(ended: Ended, after: _Steps, events: tuple[EventRecord, ...]) -> float | None:
    """From the moment the loss was seen: the first event that names it."""
    seen = [event.at for event in events if ended.why and ended.why in event.what] or [ended.at]
    if after:
        first = min(after)
        return _epoch(after[first]["time"]) - seen[0]
    starts = [event.at for event in events if "is being started" in event.what and event.at > seen[0]]
    return starts[0] - seen[0] if starts else None


def _read_metrics(path: Path) -> dict[int, _Steps]:
    """attempt -> step -> row. A line that was cut off by a kill is the last one of its attempt, and left out."""
    found: dict[int, _Steps] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found.setdefault(int(row["attempt"]), {})[int(row["step"])] = row
    return found


def _epoch(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def timeline(report: Report) -> list[tuple[str, str]]:
    """Rows for people: seconds and words; what repeats at once is told once."""
    rows = [(f"{moment.seconds:8.1f} s", moment.what) for moment in report.moments]
    return [rows[0], *(row for before, row in pairwise(rows) if row[1] != before[1])] if rows else []
