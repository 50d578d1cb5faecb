"""Runs that have ended, with what was estimated for them and what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from orchestrator.documents.curves import CurveReader, Point
from orchestrator.documents.runs import RunSummary, summarize_runs
from orchestrator.errors import OrchError
from orchestrator.formatting import format_amount, format_duration, format_utc
from orchestrator.offers.own_speeds import OwnSpeed, measure_ratio
from orchestrator.offers.predictions import Compared, compare_estimate
from orchestrator.storage.bucket import Bucket
from orchestrator.store.read import Reader

MOST_RUNS = 100  # the newest; the curves of each are read from its bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """One run.

    Attributes:
        machines: The accelerator on which it ended.
        compared: What was estimated and is measured.
        problem: Why its curves could not be read; "" where they could, or where it has no bucket.
        speed: What it says of the speed of like runs; None where nothing was measured.
    """

    run_id: str
    machines: str
    compared: tuple[Compared, ...]
    problem: str = ""
    speed: OwnSpeed | None = None


def judge_runs(
    store: Reader,
    now: float,
    open_bucket: Callable[[str, str], Bucket],
    *,
    project: str = "",
    owner: str = "",
    most: int = MOST_RUNS,
    curves: CurveReader | None = None,
) -> tuple[JudgedRun, ...]:
    """Return the newest runs that have ended and for which something was estimated, the newest first.

    Args:
        store: Open.
        now: Epoch seconds.
        open_bucket: Returns the bucket of a URI, as it is reached in a project.
        project: Only its runs; "" for all.
        owner: Only those of this member; "" for all.
        most: The most runs.
        curves: Keeps what was read of their files before.
    """
    predictions = {one.run_id: one for one in store.predictions()[-10 * MOST_RUNS :]}
    found = [
        run
        for run in summarize_runs(store, now, predictions.keys())
        if run.last.state == "ended" and project in ("", run.project) and owner in ("", run.cluster.owner)
    ]
    reader = curves or CurveReader()
    return tuple(_judge(run, predictions[run.run_id].estimate, open_bucket, reader) for run in found[:most])


def _judge(run: RunSummary, estimate: str, open_bucket: Callable[[str, str], Bucket], curves: CurveReader) -> JudgedRun:
    machines = run.spending.newest_machines
    accelerator = "" if machines is None else machines.accelerator
    points, problem = _read_points(run, open_bucket, curves)
    whole = run.last.status == 0  # one that failed took less time than its steps
    measured = {
        "tokens_per_s": measure_speed(points),
        "seconds": sum(one.end - one.begin for one in run.spending.billed) if whole and run.spending.billed else None,
        "dollars": run.dollars if whole and run.spending.billed else None,
    }
    recorded = json.loads(estimate)
    compared = compare_estimate(recorded, accelerator, measured)
    ended = max((one.end for one in run.spending.billed), default=0.0)
    day = datetime.fromtimestamp(ended, UTC).date().isoformat()
    speed = measure_ratio(recorded, accelerator, measured["tokens_per_s"], run_id=run.run_id, day=day)
    return JudgedRun(run_id=run.run_id, machines=accelerator, compared=compared, problem=problem, speed=speed)


def _read_points(
    run: RunSummary, open_bucket: Callable[[str, str], Bucket], curves: CurveReader
) -> tuple[tuple[Point, ...], str]:
    if not run.last.bucket:
        return (), ""
    try:
        return curves.read_points(open_bucket(run.last.bucket, run.project), run.run_id), ""
    except OrchError as error:
        return (), error.what


def measure_speed(points: Sequence[Point]) -> float | None:
    """Return the median of the logged tokens a second; None without points. The first may have the compiler in it."""
    speeds = [one.tokens_per_s for one in points if one.tokens_per_s is not None]
    return median(speeds[1:] or speeds) if speeds else None


def count_inside(runs: Sequence[JudgedRun]) -> tuple[int, int]:
    """Return how many quantities are within the estimate, and how many there are."""
    compared = [one for run in runs for one in run.compared]
    return sum(one.is_inside for one in compared), len(compared)


def describe_compared(one: Compared) -> tuple[str, str, str]:
    """Return a quantity of a run in words: its name, the estimate, and what was measured."""
    name = {"seconds": "time", "dollars": "cost"}.get(one.quantity, "tokens/s")
    return name, describe_bounds((one.low, one.high), one.quantity), _write_amount(one.measured, one.quantity)


def describe_bounds(bounds: tuple[float, float], quantity: str) -> str:
    """Return low and high of a quantity in words."""
    return " to ".join(_write_amount(value, quantity) for value in bounds)


def _write_amount(value: float, quantity: str) -> str:
    match quantity:
        case "seconds":
            return format_duration(value)
        case "dollars":
            return format_amount(value)
        case _:
            return f"{value:,.0f}"


def accuracy_as_json(runs: Sequence[JudgedRun], now: float) -> dict[str, Any]:
    """Return the runs as in data/accuracy.schema.json."""
    inside, every = count_inside(runs)
    return {
        "version": 1,
        "kind": "accuracy",
        "now": format_utc(now),
        "inside": inside,
        "compared": every,
        "runs": [
            {
                "run_id": run.run_id,
                "machines": run.machines,
                "problem": run.problem or None,
                "compared": [
                    {
                        "quantity": one.quantity,
                        "low": one.low,
                        "high": one.high,
                        "measured": one.measured,
                        "inside": one.is_inside,
                    }
                    for one in run.compared
                ],
            }
            for run in runs
        ],
    }
