"""Speeds of own runs, and what they say of a run with like settings on the same chip. Pure.

An own run is compared with the middle of what the table says of it. So what is carried over is a ratio, and model, mesh
and settings count as the table counts them. Only runs are taken whose settings are the same and whose model is of like
size: the table may be wrong in another way elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        step: Identity of its step; "" of a run whose plan recorded none.
    """

    run_id: str
    day: str
    chip: str
    settings: str
    flops_per_token: float
    ratio: float
    step: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields, as `read_speeds` takes them."""
        return {
            "run_id": self.run_id,
            "day": self.day,
            "chip": self.chip,
            "settings": self.settings,
            "flops_per_token": self.flops_per_token,
            "ratio": self.ratio,
            "step": self.step,
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
            step = row.get("step")
            found.append(replace(made, step=step) if isinstance(step, str) else made)
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
        "step": row.get("step"),
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
    return _summarize(like, "with these settings") if like else None


def find_same_runs(speeds: Iterable[OwnSpeed], step: str) -> LikeRuns | None:
    """Return what own runs of exactly the same step say; None where there are none.

    Args:
        speeds: Of own runs.
        step: Its identity.
    """
    same = [one for one in speeds if step and one.step == step]
    return _summarize(same, "of this step") if same else None


def _summarize(runs: Sequence[OwnSpeed], which: str) -> LikeRuns:
    ratios = sorted(one.ratio for one in runs)
    margin = _MARGIN if len(runs) >= _FEW else _FEW_MARGIN
    spread = f"{ratios[0]:.2f}" if len(runs) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    count = "1 own run" if len(runs) == 1 else f"{len(runs)} own runs"
    newest = max(one.day for one in runs)
    source = f"{count} on {runs[0].chip} {which}, {spread} times the table's middle (newest {newest})"
    return LikeRuns(ratios[0] / margin, median(ratios), ratios[-1] * margin, source)
