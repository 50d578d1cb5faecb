"""What a run has cost at each moment, and how much of it was paid without progress.

The truth is in the intents: from when to when each slice was billed, and at which price. The points of the curves say
which of that time became steps that were kept. The rest is set-up, waiting, and steps that were done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.plan.observed import Intent
from orchestrator.slices import Candidate

if TYPE_CHECKING:  # `orch runs` needs no curves
    from orchestrator.documents.curves import Point

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTime:
    """Machines that were billed from `begin` to `end`.

    Attributes:
        begin: Epoch seconds.
        end: Epoch seconds; the present for machines that are still billed.
        candidate: The machines.
    """

    begin: float
    end: float
    candidate: Candidate

    @property
    def price_per_hour(self) -> float | None:
        """The list price; None when not known."""
        return self.candidate.price_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The cost of a run over time, in list prices of the machines: without disks, addresses and buckets.

    Attributes:
        billed: When machines were billed for it.
        kept: When steps were made that were not made again, as pairs of epoch seconds, in order.
    """

    billed: tuple[BilledTime, ...]
    kept: tuple[tuple[float, float], ...] = ()

    @property
    def newest_machines(self) -> Candidate | None:
        """Those of its machines that came last; None without any. Its cluster may have had others since."""
        newest = max(self.billed, key=lambda one: (one.begin, one.end), default=None)
        return None if newest is None else newest.candidate

    @property
    def known(self) -> bool:
        """Whether every price is known. A cost that is not known is never shown as 0."""
        return all(one.price_per_hour is not None for one in self.billed)

    def dollars_until(self, moment: float) -> float:
        """Return what was paid until a moment, by the prices that are known."""
        return sum(_dollars(one, one.begin, moment) for one in self.billed)

    def dollars_without_progress_until(self, moment: float) -> float:
        """Return the part of `dollars_until` that was paid while no step was made that was kept."""
        useful = sum(
            _dollars(one, begin, min(end, moment)) for one in self.billed for begin, end in self.kept if begin < moment
        )
        return max(self.dollars_until(moment) - useful, 0.0)

    @property
    def dollars_per_hour(self) -> float | None:
        """What the machines cost now; None when a price is not known, 0 without machines."""
        last = max((one.end for one in self.billed), default=0.0)
        now = [one.price_per_hour for one in self.billed if one.end == last]
        return None if None in now else sum(price for price in now if price is not None)


def _dollars(one: BilledTime, begin: float, end: float) -> float:
    seconds = min(one.end, end) - max(one.begin, begin)
    return seconds / _HOUR * one.price_per_hour if seconds > 0 and one.price_per_hour is not None else 0.0


def list_billed_times(
    intents: Sequence[Intent], spans: Sequence[tuple[float, float]], now: float
) -> tuple[BilledTime, ...]:
    """Return when slices were billed during any of the spans, which are the times of a run's jobs."""
    found: list[BilledTime] = []
    for intent in intents:
        if intent.billed_from is None:
            continue
        for opened, ended in spans:
            begin, end = max(intent.billed_from, opened), min(intent.billed_until or now, ended)
            if end > begin:
                found.append(BilledTime(begin=begin, end=end, candidate=intent.candidate))
    return tuple(sorted(found, key=lambda one: one.begin))


def list_kept_times(points: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    """Return when steps were made that no later attempt made again.

    An attempt's time begins with its first point: what came before is counted as set-up, by less than one interval of
    the log.
    """
    attempts: dict[int, list[Point]] = {}
    for point in points:
        attempts.setdefault(point.attempt, []).append(point)
    found: list[tuple[float, float]] = []
    resumed_from: float = float("inf")  # the step from which the next attempt began
    for number in sorted(attempts, reverse=True):
        own = attempts[number]
        kept = [point for point in own if point.step < resumed_from]
        if kept:
            found.append((own[0].time, kept[-1].time))
        resumed_from = min(resumed_from, own[0].step)
    return tuple(reversed(found))
