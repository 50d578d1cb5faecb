"""The report of a rehearsal: its events, what was lost, whether the loss curve continued, the cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.engine.rehearsal.rehearse import Played
from orchestrator.engine.rehearsal.resumption import AttemptSteps, begins_again
from orchestrator.plan.limits import dollars_spent
from orchestrator.plan.observed import EndedAttempt, Intent, Observed
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import EventRecord, JobRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """An event, in seconds since the rehearsal began."""

    seconds: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """From one attempt to the next.

    Attributes:
        attempt: The attempt that ended.
        cause: Its cause.
        why: The message.
        seconds: From the moment the loss was seen until the first new step (or the program's start).
        lost_steps: Steps that were done twice; None when the program reported no steps.
        lost_seconds: Their duration; None when the program reports no times.
        resumed_step: The step from which the next attempt continued; None when the program reported no steps.
        began_again: Whether the program began at its first step again; None when its heartbeats do not show it.
        found_saved: Whether a checkpoint was there for it.
        repeated: Steps that both attempts made.
        same_loss: How many of these have the same loss to the last bit.
        largest_difference: The largest difference of their losses.
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
    resumed_step: int | None
    began_again: bool | None
    found_saved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report; `dollars` is the machine time at list price, None when unknown; `status` is the task's."""

    status: int | None
    what: str
    seconds: float
    moments: tuple[Moment, ...]
    resumes: tuple[Restart, ...]  # its name is a key of `rehearse -o json`
    launcher_crashes: int
    dollars: float | None
    dollars_per_hour: float | None
    steps: int
    has_losses: bool

    @property
    def not_resumed(self) -> Restart | None:
        """Return the first restart after which the program began at its first step again; None without one."""
        return next((resume for resume in self.resumes if resume.began_again), None)

    @property
    def resumed(self) -> bool | None:
        """Whether the program resumed after each loss; None when there was none, or it reports too few steps."""
        if self.not_resumed is not None:
            return False
        unknown = any(one.began_again is None and one.lost_seconds is None for one in self.resumes)
        return None if unknown or not self.resumes else True

    @property
    def loss_continued(self) -> bool | None:
        """Whether repeated steps have equal losses; None without losses or repeated steps."""
        repeated = sum(resume.repeated for resume in self.resumes)
        if not self.has_losses or not repeated:
            return None
        return sum(resume.same_loss for resume in self.resumes) == repeated


_Steps = dict[int, dict[str, Any]]


def read_report(database: Path, metrics: Path, cluster: str, played: Played, now: float) -> Report:
    """Read the report from the rehearsal's own store, the trainer's metrics of every step, and heartbeats."""
    with open_reader_at(database) as reader:
        record = reader.cluster(cluster) or reader.deleted_cluster(cluster)
        events = reader.events(cluster, limit=100_000)
        jobs = reader.jobs(record) if record is not None else ()
        intents = reader.intents(record) if record is not None else ()
        ended = reader.ended_attempts(record, jobs[-1].id) if record is not None and jobs else ()
    by_attempt = _read_metrics(metrics)
    return _report(events, jobs, intents, ended, by_attempt, played, now)


def _report(
    events: tuple[EventRecord, ...],
    jobs: tuple[JobRecord, ...],
    intents: tuple[Intent, ...],
    ended: tuple[EndedAttempt, ...],
    steps: dict[int, _Steps],
    played: Played,
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
        moments=tuple(Moment(event.at - began, event.what) for event in events if event.kind in _SHOWN_KINDS),
        resumes=tuple(_restart(one, steps, events, played.attempts) for one in ended),
        launcher_crashes=played.kills,
        dollars=dollars_spent(Observed(now=last, intents=intents)),
        dollars_per_hour=prices[-1] if prices else None,
        steps=max(
            *(max(made) for made in steps.values() if made), *(one.last for one in played.attempts.values()), 0, 0
        ),
        has_losses=bool(steps),
    )


_SHOWN_KINDS = frozenset({"cluster", "intent", "attempt", "job", "trouble"})


def _restart(
    ended: EndedAttempt,
    steps: dict[int, _Steps],
    events: tuple[EventRecord, ...],
    heartbeats: Mapping[int, AttemptSteps],
) -> Restart:
    before, after = steps.get(ended.attempt, {}), steps.get(ended.attempt + 1, {})
    repeated = sorted(before.keys() & after.keys())
    differences = [abs(before[step]["loss"] - after[step]["loss"]) for step in repeated]
    lost: int | None = None
    seconds: float | None = None
    if before and after:
        lost = max(0, max(before) - min(after) + 1)
        seconds = sum(row["step_s"] for step, row in before.items() if step >= min(after))
    left, came = heartbeats.get(ended.attempt), heartbeats.get(ended.attempt + 1)
    if lost is None and left is not None and came is not None:
        lost = max(0, left.last - came.first + 1)
    first = min(after) if after else came.first if came is not None else None
    return Restart(
        attempt=ended.attempt,
        cause=str(ended.cause),
        why=ended.why,
        seconds=_recovery(ended, after, events),
        lost_steps=lost,
        lost_seconds=seconds,
        repeated=len(repeated),
        same_loss=sum(before[step]["loss_hex"] == after[step]["loss_hex"] for step in repeated),
        largest_difference=max(differences, default=0.0),
        resumed_step=None if first is None else first - 1,
        began_again=begins_again(left, came) if left is not None and came is not None and not steps else None,
        found_saved=came is not None and came.found_saved,
    )


def _recovery(ended: EndedAttempt, after: _Steps, events: tuple[EventRecord, ...]) -> float | None:
    """Return the seconds since the first row that recorded the loss: the slice's, or that of the attempt."""
    seen = [event.at for event in events if ended.why and _read_after(event).get("why") == ended.why] or [ended.at]
    if after:
        first = min(after)
        return _epoch(after[first]["time"]) - seen[0]
    starts = [event.at for event in events if event.at > seen[0] and _is_start(event)]
    return starts[0] - seen[0] if starts else None


def _is_start(event: EventRecord) -> bool:
    """Return whether the event set the column `started` of a job."""
    return event.kind == "job" and _read_after(event).get("started") is True


def _read_after(event: EventRecord) -> dict[str, Any]:
    """Return the columns that the event set."""
    return dict(json.loads(event.after)) if event.after else {}


def _read_metrics(path: Path) -> dict[int, _Steps]:
    """Return rows by attempt and step. A line cut off by a kill is the last of its attempt, and left out."""
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


def format_timeline(report: Report) -> list[tuple[str, str]]:
    """Return rows for people, seconds and text; immediate repetitions appear once."""
    rows = [(f"{moment.seconds:8.1f} s", moment.what) for moment in report.moments]
    return [rows[0], *(row for before, row in pairwise(rows) if row[1] != before[1])] if rows else []
