"""The curves of a run: the numbers that its trainer wrote to the bucket, by step, over all attempts.

The bucket is the one source, for a run at work and for one that has ended. The files are written by programs on rented
hosts, so a line that is no record is passed over, and nothing here reads more than a fixed amount.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.storage.bucket import Bucket

FOLDER = "metrics"  # written by trainer/metrics/files.py
_PART = re.compile(r"metrics/attempt-(\d{1,9})/part-\d{1,9}\.jsonl")
_MOST_BYTES = 64 * 2**20  # of one part; 30 s of lines are some KiB
_MOST_RUNS = 32  # kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One logged step.

    Attributes:
        time: When it was logged, in epoch seconds.
        attempt: From 1.
        loss: Mean nats per token; None where the program wrote no number.
        tokens: Used so far, over all ranks.
        tokens_per_s: Over all devices.
        mfu: Share of the published peak; None when not known.
        memory: Peak bytes in use on one device; None when not known.
        eta_s: Seconds to the last step; None when not known.
        failed_saves: Checkpoints of the attempt that could not be written.
        stall_s: Seconds for which checkpoints stopped training since the last point.
    """

    step: int
    time: float
    attempt: int
    loss: float | None
    tokens: int | None
    tokens_per_s: float | None
    mfu: float | None
    memory: int | None
    eta_s: float | None
    failed_saves: int
    stall_s: float


@dataclass(kw_only=True)
class CurveReader:
    """Reads the points of runs, and each part of their files once: parts are never overwritten.

    Safe for several threads.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _parts: dict[str, dict[str, tuple[Point, ...]]] = field(default_factory=dict[str, dict[str, tuple[Point, ...]]])

    def read_points(self, bucket: Bucket, run_id: str) -> tuple[Point, ...]:
        """Return all points of a run, by time; empty for a run that has written none.

        Args:
            bucket: The bucket of the run, without the run's folder.
            run_id: The run.

        Raises:
            OrchError: The bucket cannot be read.
        """
        key = bucket.uri_of(run_id)
        with self._lock:
            known = dict(self._parts.get(key, {}))
        listed = dict(_list_parts(bucket, run_id))
        known |= {path: _read_part(bucket, path, listed[path]) for path in listed.keys() - known.keys()}
        with self._lock:
            self._parts.pop(key, None)
            self._parts[key] = known  # the newest last
            for old in list(self._parts)[:-_MOST_RUNS]:
                del self._parts[old]
        return tuple(sorted((point for part in known.values() for point in part), key=lambda point: point.time))


def _list_parts(bucket: Bucket, run_id: str) -> Iterator[tuple[str, int]]:
    try:
        found = list(bucket.list(f"{run_id}/{FOLDER}"))
    except NotFoundError:
        return
    for one in found:
        matched = _PART.fullmatch(one.path.removeprefix(f"{run_id}/"))
        if matched is not None:
            yield one.path, int(matched[1])


def _read_part(bucket: Bucket, path: str, attempt: int) -> tuple[Point, ...]:
    text = bucket.get_bounded(path, _MOST_BYTES).decode("utf-8", "replace")
    found = (parse_point(line, attempt) for line in text.splitlines())
    return tuple(point for point in found if point is not None)


def parse_point(line: str, attempt: int) -> Point | None:
    """Return the point of one JSON line, or None for a line that is none."""
    try:
        record: Any = json.loads(line)
        step, time = int(record["step"]), datetime.fromisoformat(record["time"]).timestamp()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    tokens, memory = _number(record, "tokens"), _number(record, "memory")
    return Point(
        step=step,
        time=time,
        attempt=attempt,
        loss=_number(record, "loss"),
        tokens=None if tokens is None else int(tokens),
        tokens_per_s=_number(record, "tokens_per_s"),
        mfu=_number(record, "mfu"),
        memory=None if memory is None else int(memory),
        eta_s=_number(record, "eta_s"),
        failed_saves=int(_number(record, "failed_saves") or 0),
        stall_s=_number(record, "checkpoint_stall_s") or 0.0,
    )


def _number(record: dict[str, Any], name: str) -> float | None:
    """Return a finite number of a record; NaN and infinity are None, and drawn as a gap."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def reduce_points(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """Return at most `most` points with the shape of all: of each group the lowest, the highest, and the last.

    Peaks stay visible, and so do points without a loss. Other reductions, such as LTTB, hide both.
    """
    if len(points) <= most:
        return tuple(points)
    groups = max(most // 4, 1)
    kept: list[Point] = []
    for number in range(groups):
        group = points[number * len(points) // groups : (number + 1) * len(points) // groups]
        known = [point for point in group if point.loss is not None]
        gaps = [point for point in group if point.loss is None][:1]
        chosen = [*gaps, group[-1]]
        if known:
            chosen += [min(known, key=_loss), max(known, key=_loss)]
        kept += sorted({id(point): point for point in chosen}.values(), key=lambda point: point.time)
    return tuple(kept)


def _loss(point: Point) -> float:
    return 0.0 if point.loss is None else point.loss
