"""What own requests for machines say of capacity: how often they got any, how long it took, and what was lost. Pure.

Counts weigh less with age (half after 14 days). A probability is that of a Beta distribution whose prior is one success
and one failure; a rate of losses that of a Gamma distribution with half a loss as its prior. Below five requests both
are not known, nor is the rate before five losses or ENOUGH_HOURS. Without machines yet, a request
says only that its wait is longer than until now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from orchestrator.offers.estimates import Estimate
from orchestrator.slices import Candidate

DAY = 86_400.0
HALF_LIFE = 14 * DAY
WINDOW = 84 * DAY  # what is older weighs less than a sixty-fourth
ANYWHERE = "*"
FEWEST = 5  # requests below which nothing is known; likewise losses, in a shorter time than ENOUGH_HOURS
# Hours of machines after which few losses say something: the mean time between two at the rate that estimates.py
# assumes otherwise. None in so long a time excludes the highest rate assumed there (98 %).
ENOUGH_HOURS = 20.0
_HOUR = 3600.0
SHOWN_WAIT = _HOUR  # for one figure: machines within an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityKey:
    """What was asked for.

    Attributes:
        place: The zone, or the region where no zone was named; ANYWHERE for all places.
        market: One of spending_budget.MARKETS.
    """

    provider: str
    place: str
    accelerator: str
    hosts: int
    market: str

    def anywhere(self) -> CapacityKey:
        """Return the same for all places."""
        return replace(self, place=ANYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """One request for machines, and what came of it.

    Attributes:
        at: When it was made, in epoch seconds.
        wait: Seconds until the first program started on the machines, or until the request was refused or ended.
        got: Whether there were machines; None for a request that ended, or lasts still, without an answer.
        hours: How long there were machines, from the start of the program on.
        lost: Whether they were lost.
    """

    key: CapacityKey
    at: float
    wait: float
    got: bool | None
    hours: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityFigures:
    """What is known of one key.

    Attributes:
        requests: How many were made.
        got: How many of them got machines.
        refused: How many were refused.
        median_wait: Seconds to the start of the program, of those that got machines; None for none.
        losses_per_hour: Of a slice; None where fewer than FEWEST had machines, or had them too short.
        lost: How many were lost.
    """

    requests: int
    got: int
    refused: int
    median_wait: float | None
    losses_per_hour: float | None
    lost: int
    waits: tuple[tuple[float, float, bool | None], ...]

    def chance_within(self, seconds: float) -> float | None:
        """Return the probability of machines within a time; None when it is not known."""
        answered = [
            (weight, got and wait <= seconds) for weight, wait, got in self.waits if got is not None or wait >= seconds
        ]
        if len(answered) < FEWEST:
            return None
        return (1 + sum(weight for weight, yes in answered if yes)) / (2 + sum(weight for weight, _ in answered))

    def estimate_wait(self) -> Estimate | None:
        """Return the seconds from a request to the start of the program, of those that got machines; None for few."""
        waits = [wait for _, wait, got in self.waits if got]
        if len(waits) < FEWEST:
            return None
        return Estimate(low=min(waits), typical=median(waits), high=max(waits))

    def __str__(self) -> str:
        """Return the counts, as `3 of 5 requests got machines, median wait 22 min`."""
        wait = "" if self.median_wait is None else f", median wait {self.median_wait / 60:,.0f} min"
        return f"{self.got} of {self.requests} requests got machines{wait}"


def summarize_capacity(requests: Iterable[CapacityRequest], now: float) -> dict[CapacityKey, CapacityFigures]:
    """Return what is known of each key, and of each key in all places.

    Args:
        requests: Those of the last WINDOW count.
        now: Epoch seconds.
    """
    groups: dict[CapacityKey, list[CapacityRequest]] = {}
    for one in requests:
        if now - one.at <= WINDOW:
            for key in {one.key, one.key.anywhere()}:
                groups.setdefault(key, []).append(one)
    return {key: _summarize(own, now) for key, own in groups.items()}


def _summarize(own: Sequence[CapacityRequest], now: float) -> CapacityFigures:
    weights = [0.5 ** (max(0.0, now - one.at) / HALF_LIFE) for one in own]
    had = [one for one in own if one.got]
    hours = sum(weight * one.hours for weight, one in zip(weights, own, strict=True))
    lost = sum(weight for weight, one in zip(weights, own, strict=True) if one.lost)
    losses = sum(one.lost for one in own)
    known = len(had) >= FEWEST and (hours >= ENOUGH_HOURS or (losses >= FEWEST and hours > 0))
    return CapacityFigures(
        requests=len(own),
        got=len(had),
        refused=sum(one.got is False for one in own),
        median_wait=median(one.wait for one in had) if had else None,
        losses_per_hour=(lost + 0.5) / hours if known else None,
        lost=losses,
        waits=tuple((weight, one.wait, one.got) for weight, one in zip(weights, own, strict=True)),
    )


def make_key(candidate: Candidate, market: str) -> CapacityKey:
    """Return what a candidate asks for; `market` is the name of its market."""
    return CapacityKey(
        provider=candidate.provider,
        place=candidate.zone or candidate.region,
        accelerator=candidate.accelerator,
        hosts=candidate.hosts,
        market=market,
    )


def order_equal_prices(
    candidates: Sequence[Candidate], figures: Mapping[Candidate, CapacityFigures]
) -> tuple[Candidate, ...]:
    """Return candidates with those first that more often got machines, among neighbours of the same price.

    One of which nothing is known counts as got every second time. No candidate is left out.

    Args:
        candidates: Of one choice of a task, in order.
        figures: What is known of some.
    """
    chances = {one: found.chance_within(SHOWN_WAIT) for one, found in figures.items()}
    groups: list[list[Candidate]] = []
    for one in candidates:
        if groups and groups[-1][0].price_per_hour == one.price_per_hour:
            groups[-1].append(one)
        else:
            groups.append([one])

    def expect_refusal(one: Candidate) -> float:
        chance = chances.get(one)
        return -(0.5 if chance is None else chance)

    return tuple(one for group in groups for one in sorted(group, key=expect_refusal))
