"""What is drawn on a chip: its use, memory or temperature, as a number and a level.

A chip is judged by what its own tool reports, and by nothing else: it is hot at the temperature at which it slows down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Literal

from orchestrator.documents.topology import Topology
from orchestrator.formatting import format_size
from orchestrator.hosts import ChipReport, ChipSample

Measure = Literal["steps", "use", "memory", "temperature"]
MEASURES: tuple[Measure, ...] = ("steps", "use", "memory", "temperature")


class Grade(StrEnum):
    """What a number says; each has its own shape and words, not only its own colour."""

    PLAIN = "measured"
    HOT = "slows down: too hot"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipMark:
    """One number of one chip.

    Attributes:
        text: The number as it is drawn.
        level: How full its square is, 0 to 1; None where nothing bounds the number.
        words: The number with its unit.
        errors: Errors of its memory that were not corrected.
    """

    grade: Grade
    text: str
    level: float | None
    words: str
    errors: int = 0


_UNKNOWN = ChipMark(grade=Grade.UNKNOWN, text="", level=None, words=Grade.UNKNOWN.value)


def mark_chips(
    measure: Measure, topology: Topology, reports: Mapping[int, ChipReport]
) -> dict[int, tuple[ChipMark, ...]]:
    """Return the marks of each host's chips, by rank; {} for a drawing by steps.

    A host of which no chip is known, or not as many as its machine has, has one mark that says so for all of them.
    """
    if measure == "steps":
        return {}
    return {
        rank: _mark_host(measure, reports[rank].chips if rank in reports else (), topology.chips_per_host)
        for rank in range(topology.hosts)
    }


def find_mark(marks: Mapping[int, Sequence[ChipMark]], rank: int, number: int) -> ChipMark | None:
    """Return the mark of one chip; None in a drawing without marks."""
    if rank not in marks:
        return None
    return marks[rank][number] if number < len(marks[rank]) else marks[rank][0]


def find_worst(marks: Mapping[int, Sequence[ChipMark]], rank: int, measure: Measure) -> ChipMark | None:
    """Return the mark of the chip that matters most of a host: the idlest, the fullest or the hottest."""
    own = [mark for mark in marks.get(rank, ()) if mark.grade is not Grade.UNKNOWN]
    if not own:
        return find_mark(marks, rank, 0)
    ordered = sorted(own, key=lambda mark: float(mark.text or 0))
    worst = ordered[0 if measure == "use" else -1]
    hot = any(mark.grade is Grade.HOT for mark in own)
    return ChipMark(
        grade=Grade.HOT if hot else worst.grade, text=worst.text, level=worst.level,
        words=worst.words if len(own) == 1 else f"{_EXTREME[measure]} of {len(own)} chips {worst.words}",
        errors=sum(mark.errors for mark in own),
    )  # fmt: skip


_EXTREME: dict[Measure, str] = {"steps": "", "use": "lowest", "memory": "fullest", "temperature": "hottest"}


def describe_marks(marks: Sequence[ChipMark]) -> str:
    """Return the marks of a host in words."""
    if len({mark.words for mark in marks}) == 1:
        return marks[0].words if len(marks) == 1 else f"all {marks[0].words}"
    return ", ".join(mark.words for mark in marks)


def _mark_host(measure: Measure, samples: Sequence[ChipSample], chips: int) -> tuple[ChipMark, ...]:
    count = chips or len(samples)
    if not samples:
        return (_UNKNOWN,)
    if len(samples) % count:  # of the chips that are left, the tool says no place
        words = f"{len(samples)} of {count} chips report"
        return (ChipMark(grade=Grade.UNKNOWN, text="", level=None, words=words),)
    cores = len(samples) // count
    return tuple(
        _mark_chip(measure, join_cores(samples[first : first + cores])) for first in range(0, len(samples), cores)
    )


def join_cores(cores: Sequence[ChipSample]) -> ChipSample:
    """Return the cores of a chip as one sample."""
    if len(cores) == 1:
        return cores[0]

    def collect(name: str) -> list[float]:
        return [value for core in cores if (value := getattr(core, name)) is not None]

    def total(name: str) -> int | None:
        return int(sum(collect(name))) if len(collect(name)) == len(cores) else None

    uses = collect("use")
    return ChipSample(
        name=cores[0].name,
        use=fmean(uses) if uses else None,
        used=total("used"),
        total=total("total"),
        temperature=max(collect("temperature"), default=None),
        slowdown=min(collect("slowdown"), default=None),
        power=max(collect("power"), default=None),
        errors=int(max(collect("errors"))) if collect("errors") else None,
    )


def _mark_chip(measure: Measure, chip: ChipSample) -> ChipMark:
    mark = _MARKS[measure](chip)
    if not chip.errors:
        return mark
    noun = "error" if chip.errors == 1 else "errors"
    return ChipMark(
        grade=mark.grade, text=mark.text, level=mark.level, errors=chip.errors,
        words=f"{mark.words}, {chip.errors} uncorrected {noun}",
    )  # fmt: skip


def _mark_use(chip: ChipSample) -> ChipMark:
    if chip.use is None:
        return _UNKNOWN
    percent = f"{chip.use * 100:.0f}"
    return ChipMark(grade=Grade.PLAIN, text=percent, level=chip.use, words=f"{percent} % in use")


def _mark_memory(chip: ChipSample) -> ChipMark:
    if chip.used is None:
        return _UNKNOWN
    if not chip.total:
        return ChipMark(grade=Grade.PLAIN, text="", level=None, words=f"{format_size(chip.used)} in use")
    share = chip.used / chip.total
    words = f"{share * 100:.0f} % of {format_size(chip.total)} in use"
    return ChipMark(grade=Grade.PLAIN, text=f"{share * 100:.0f}", level=share, words=words)


def _mark_temperature(chip: ChipSample) -> ChipMark:
    if chip.temperature is None:
        return _UNKNOWN
    text = f"{chip.temperature:.0f}"
    if not chip.slowdown:
        return ChipMark(grade=Grade.PLAIN, text=text, level=None, words=f"{text} °C")
    hot = chip.temperature >= chip.slowdown
    return ChipMark(
        grade=Grade.HOT if hot else Grade.PLAIN,
        text=text,
        level=min(chip.temperature / chip.slowdown, 1.0),
        words=f"{text} °C, {'slows down' if hot else 'which slows down'} at {chip.slowdown:.0f} °C",
    )


_MARKS: dict[Measure, Callable[[ChipSample], ChipMark]] = {
    "steps": lambda _chip: _UNKNOWN,
    "use": _mark_use,
    "memory": _mark_memory,
    "temperature": _mark_temperature,
}
