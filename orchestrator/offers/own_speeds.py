"""Speeds of own runs, and what they say of a run with like settings on the same chip. Pure.

An own run is compared with the middle of what the table says of it. So what is carried over is a ratio, and model, mesh
and settings count as the table counts them. Only runs are taken whose settings are the same and whose model is of like
size: the table may be wrong in another way elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from orchestrator.offers.estimates import Estimate

LIKE_SIZE = 4.0  # between the FLOPs of a token of two models of like size
MOST_RUNS = 50
# How far a run may be from the own ones before it: assumed. Two runs of one setting differ by 2 % on one machine
# (docs/performance.md); more machines and other models differ by more.
_FEW, _FEW_MARGIN, _MARGIN = 3, 1.3, 1.15
_SLOWEST, _FASTEST = 0.05, 4.0  # ratios beyond these are no speed of such a run


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSpeed:
    """How fast one run was.

    Attributes:
        run_id: Of the run.
        day: ISO date of its end.
        chip: As the trainer calls it.
        settings: Those that change the speed, as `dtype=bf16 exact=false`.
        flops_per_token: Of its model.
        ratio: Measured tokens a second by the middle of the estimate.
    """

    run_id: str
    day: str
    chip: str
    settings: str
    flops_per_token: float
    ratio: float

    def as_json(self) -> dict[str, Any]:
        """Return the fields, as `read_speeds` takes them."""
        return {
            "run_id": self.run_id,
            "day": self.day,
            "chip": self.chip,
            "settings": self.settings,
            "flops_per_token": self.flops_per_token,
            "ratio": self.ratio,
        }


@dataclass(frozen=True, slots=True)
class LikeRuns:
    """What own runs say of another one.

    Attributes:
        low: Ratio of its speed to the middle of the estimate, lowest; likewise `typical` and `high`.
        source: For the line below the table.
    """

    low: float
    typical: float
    high: float
    source: str

    def adjust(self, step: Estimate) -> Estimate:
        """Return the time of a step: that of the table's middle, by the ratio."""
        return Estimate(low=step.typical / self.high, typical=step.typical / self.typical, high=step.typical / self.low)


def read_speeds(values: object) -> tuple[OwnSpeed, ...]:
    """Return the speeds of a JSON list; what another orch wrote in another form is passed over."""
    found: list[OwnSpeed] = []
    for value in cast("list[object]", values) if isinstance(values, list) else ():
        row = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        texts = [row.get(key) for key in ("run_id", "day", "chip", "settings")]
        numbers = [row.get(key) for key in ("flops_per_token", "ratio")]
        if not all(isinstance(one, str) for one in texts) or not all(type(one) in (int, float) for one in numbers):
            continue
        flops, ratio = (float(cast(float, one)) for one in numbers)
        if flops > 0 and _SLOWEST <= ratio <= _FASTEST:
            run_id, day, chip, settings = (str(one) for one in texts)
            made = OwnSpeed(run_id=run_id, day=day, chip=chip, settings=settings, flops_per_token=flops, ratio=ratio)
            found.append(made)
    return tuple(found[:MOST_RUNS])


def measure_ratio(
    estimate: Mapping[str, Any], accelerator: str, tokens_per_s: float | None, **about: str
) -> OwnSpeed | None:
    """Return the speed of a run for which an estimate is on record; None where one of the two is missing.

    Args:
        estimate: As predictions.make_estimate wrote it.
        accelerator: The machines on which it ran.
        tokens_per_s: As measured.
        about: `run_id` and `day`.
    """
    machines = estimate.get("machines")
    known = cast("dict[str, Any]", machines).get(accelerator) if isinstance(machines, dict) else None
    if not isinstance(known, dict) or not tokens_per_s:
        return None
    row = cast("dict[str, Any]", known)
    bounds = row.get("tokens_per_s")
    middle = cast("dict[str, Any]", bounds).get("typical") if isinstance(bounds, dict) else None
    if type(middle) not in (int, float) or not middle:
        return None
    value = {
        **about,
        "chip": row.get("chip"),
        "settings": row.get("settings"),
        "flops_per_token": row.get("flops_per_token"),
        "ratio": tokens_per_s / float(cast(float, middle)),
    }
    return next(iter(read_speeds([value])), None)


def find_like_runs(speeds: Iterable[OwnSpeed], chip: str, settings: str, flops_per_token: float) -> LikeRuns | None:
    """Return what own runs on the same chip with the same settings say; None where there are none."""
    like = [
        one
        for one in speeds
        if (one.chip, one.settings) == (chip, settings)
        and abs(math.log(one.flops_per_token / flops_per_token)) <= math.log(LIKE_SIZE)
    ]
    if not like:
        return None
    ratios = [one.ratio for one in like]
    margin = _MARGIN if len(like) >= _FEW else _FEW_MARGIN
    return LikeRuns(min(ratios) / margin, median(ratios), max(ratios) * margin, _describe(like))


def _describe(like: Sequence[OwnSpeed]) -> str:
    ratios = sorted(one.ratio for one in like)
    spread = f"{ratios[0]:.2f}" if len(like) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    runs = "1 own run" if len(like) == 1 else f"{len(like)} own runs"
    newest = max(one.day for one in like)
    return f"{runs} on {like[0].chip} with these settings, {spread} times the table's middle (newest {newest})"
