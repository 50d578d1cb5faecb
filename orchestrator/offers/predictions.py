"""What was estimated for a run when it was launched, and whether what was measured lies within it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.offers.estimates import HOUR, Estimate, assess_risk, estimate_duration
from orchestrator.slices import Candidate

QUANTITIES = ("tokens_per_s", "seconds", "dollars")


def make_estimate(advice: Sequence[Mapping[str, Any]], candidates: Iterable[Candidate]) -> dict[str, Any]:
    """Return what the trainer's advice says of a run on each kind of machine, for the records.

    Args:
        advice: JSON of trainer/shape/advice.py, of each kind of machine.
        candidates: Of the task.
    """
    first = {one.accelerator: one for one in reversed(tuple(candidates))}
    machines = {
        name: made
        for name, candidate in first.items()
        for one in advice
        if _names(one) == name and (made := _estimate_machines(one, candidate))
    }
    return {"machines": machines} if machines else {}


def _names(advice: Mapping[str, Any]) -> str:
    """Return the name of one of the machines: that of several is `2 x NAME`."""
    return str(advice.get("hardware", {}).get("name", "")).rpartition(" x ")[2]


def _estimate_machines(advice: Mapping[str, Any], candidate: Candidate) -> dict[str, Any]:
    timing, hardware = cast("dict[str, Any]", advice.get("timing") or {}), advice["hardware"]
    if not timing.get("seconds"):
        return {}
    step = Estimate.between(*timing["seconds"])
    tokens = float(timing["tokens"])
    found: dict[str, Any] = {
        "source": str(timing.get("source", "")),
        "chip": str(hardware.get("chip", "")),
        "settings": str(advice.get("speed_settings", "")),
        "step": str(advice.get("step", "")),
        "flops_per_token": float(timing.get("flops") or 0) / tokens,
        "tokens_per_s": {"low": tokens / step.high, "typical": tokens / step.typical, "high": tokens / step.low},
    }
    steps = math.ceil(float(advice.get("run_tokens") or 0) / tokens)
    risk = assess_risk(int(hardware["devices"]), int(hardware.get("slices") or 1), candidate.market)
    seconds = estimate_duration(step, steps, risk) if steps else None
    if seconds is not None:
        found["seconds"] = _as_json(seconds, 1.0)
        if candidate.price_per_hour is not None:
            found["dollars"] = _as_json(seconds, candidate.price_per_hour / HOUR)
    return found


def _as_json(estimate: Estimate, factor: float) -> dict[str, float]:
    return {
        "low": estimate.low * factor,
        "typical": estimate.typical * factor,
        "high": estimate.high * factor,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One quantity of a run.

    Attributes:
        quantity: One of QUANTITIES.
        low: As estimated; likewise `high`.
        measured: What it was.
    """

    quantity: str
    low: float
    high: float
    measured: float

    @property
    def is_inside(self) -> bool:
        """Whether it was as estimated."""
        return self.low <= self.measured <= self.high


def read_bounds(estimate: Mapping[str, Any], accelerator: str) -> dict[str, tuple[float, float]]:
    """Return low and high of each quantity that was estimated for these machines.

    Args:
        estimate: As `make_estimate` wrote it; one of another orch may have anything.
        accelerator: The machines on which it runs.
    """
    known = _read_map(_read_map(estimate.get("machines")).get(accelerator))
    found: dict[str, tuple[float, float]] = {}
    for quantity in QUANTITIES:
        bounds = _read_map(known.get(quantity))
        low, high = bounds.get("low"), bounds.get("high")
        if isinstance(low, int | float) and isinstance(high, int | float):
            found[quantity] = (low, high)
    return found


def compare_estimate(
    estimate: Mapping[str, Any], accelerator: str, measured: Mapping[str, float | None]
) -> tuple[Compared, ...]:
    """Return each quantity that was estimated for these machines and is measured.

    Args:
        estimate: As `make_estimate` wrote it.
        accelerator: The machines on which it ran.
        measured: By quantity; None where it is not known.
    """
    return tuple(
        Compared(quantity=quantity, low=low, high=high, measured=actual)
        for quantity, (low, high) in read_bounds(estimate, accelerator).items()
        if (actual := measured.get(quantity)) is not None
    )


def _read_map(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
