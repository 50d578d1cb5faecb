"""Which source says how fast a run is: own runs of the step, its compilation, like own runs, or the table. Pure.

The first that knows the step is taken. Own runs and compilations of a step are of exactly its settings, mesh and
machines: the trainer gives each step an identity (trainer/shape/step_identity.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from orchestrator.offers.estimates import Estimate
from orchestrator.offers.own_speeds import OwnSpeed, find_like_runs, find_same_runs


class SpeedSource(StrEnum):
    """Where a speed is from, the first to be taken first."""

    OWN_RUNS = "own-runs"  # of the same step
    COMPILED = "compiled"
    LIKE_RUNS = "like-runs"
    PUBLISHED = "published"
    ASSUMED = "assumed"  # of an own program


_LONGEST = 1e9  # seconds of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSpeed:
    """What the compilation of a step says of its time.

    Attributes:
        step: Seconds of one step.
        source: For the line below the table.
    """

    step: Estimate
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSpeed:
    """The time of a step, and where it is from.

    Attributes:
        step: Seconds of one step.
        origin: Kind of the source.
        source: In words.
    """

    step: Estimate
    origin: SpeedSource
    source: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields."""
        step = {"low": self.step.low, "typical": self.step.typical, "high": self.step.high}
        return {"step_seconds": step, "origin": str(self.origin), "source": self.source}


def choose_speed(
    advice: Mapping[str, Any], speeds: Sequence[OwnSpeed], compiled: Mapping[str, CompiledSpeed]
) -> ChosenSpeed | None:
    """Return the time of a step by the first source that knows it; None where not even the table does.

    Args:
        advice: Of the trainer for one kind of machine (trainer/shape/advice.py).
        speeds: Of own runs that count.
        compiled: By the identity of the step.
    """
    timing, identity = advice["timing"], str(advice.get("step", ""))
    if timing["seconds"] is None:
        return None
    table = Estimate.between(*timing["seconds"])
    if (same := find_same_runs(speeds, identity)) is not None:
        return ChosenSpeed(step=same.adjust(table), origin=SpeedSource.OWN_RUNS, source=same.source)
    if (found := compiled.get(identity)) is not None:
        return ChosenSpeed(step=found.step, origin=SpeedSource.COMPILED, source=found.source)
    flops = timing["flops"] / timing["tokens"]
    like = find_like_runs(speeds, advice["hardware"]["chip"], advice["speed_settings"], flops)
    if like is not None:
        return ChosenSpeed(step=like.adjust(table), origin=SpeedSource.LIKE_RUNS, source=like.source)
    return ChosenSpeed(step=table, origin=SpeedSource.PUBLISHED, source=timing["source"])


def read_compiled_speed(record: object) -> tuple[str, CompiledSpeed] | None:
    """Return the identity of a compiled step and its time; None for a record that has none.

    Args:
        record: As `python -m trainer compile --json` printed it, with the `day` of the compilation.
    """
    values = _read_map(record)
    timing, identity = _read_map(values.get("timing")), values.get("identity")
    numbers = [timing.get(name) for name in ("low", "typical", "high")]
    if not isinstance(identity, str) or not identity or values.get("fits") is not True:
        return None
    if not all(type(one) in (int, float) for one in numbers):
        return None
    low, typical, high = (cast(float, one) for one in numbers)
    if not 0 < low <= typical <= high < _LONGEST:
        return None
    source = f"compiled for {values.get('topology', 'the slice')} on {values.get('day', 'a day not known')}"
    step = Estimate(low=float(low), typical=float(typical), high=float(high))
    return identity, CompiledSpeed(step=step, source=f"{source}: {timing.get('source', '')}")


def _read_map(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
