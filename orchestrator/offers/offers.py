"""What can be rented for a run, and which of it is worth showing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from orchestrator.catalog.machines import Machine
from orchestrator.offers.capacity import CapacityFigures
from orchestrator.offers.estimates import (
    HOUR,
    Estimate,
    Risk,
    add_wait,
    assess_risk,
    choose_save_interval,
    estimate_duration,
)
from orchestrator.offers.other_costs import PARTS, OtherCosts
from orchestrator.offers.speed_choice import SpeedSource
from orchestrator.slices import Market

MOST_SHOWN = 8
SURE = 0.9  # from which chance on a deadline counts as met
MACHINES = "machines"
NOTHING_KNOWN = OtherCosts()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """What limits the choice.

    Attributes:
        seconds: Until the deadline; None without one.
        budget: US dollars; None without one.
        most_hosts: The most machines to log in to.
        only: Words of which each has to fit: a provider, a market, a chip, or the name of a machine.
        clouds: The providers to choose from where `only` names none; none for all.
        region: Where the machines have to be; "" for anywhere. Likewise `zone`.
        bucket: Location of the bucket with data and checkpoints; "" for the region of the machines.
    """

    seconds: float | None = None
    budget: float | None = None
    most_hosts: int = 16
    only: tuple[str, ...] = ()
    clouds: tuple[str, ...] = ()
    region: str = ""
    zone: str = ""
    bucket: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferTerms:
    """One way to run, as far as it is known before time and cost are estimated.

    Attributes:
        machine: One of the equal machines or slices.
        nodes: How many of them.
        market: How they are rented.
        price_per_hour: US dollars of all in the cheapest place, (lowest, highest).
        price_note: Where and when that price was seen.
        settings: The trainer's settings beyond those that were given.
        steps: Of the run; 1 for an own program, whose steps are not known.
        step_seconds: Of one step.
        speed_source: Where the speed is from, in words.
        speed_origin: The kind of that source; None where it is not known.
        capacity: What own requests for these machines say; None where there were none.
        other: Prices of what is paid beside the machines.
        losses_per_hour: Of all these machines, by own records; None where the rate is assumed, or that of `capacity`.
        price_doubt: Why the price has to be checked; "" where it is like its neighbours.
    """

    machine: Machine
    nodes: int
    market: Market
    price_per_hour: tuple[float, float]
    price_note: str
    settings: tuple[str, ...]
    steps: int
    step_seconds: Estimate
    speed_source: str
    capacity: CapacityFigures | None = None
    other: OtherCosts = NOTHING_KNOWN
    losses_per_hour: float | None = None
    price_doubt: str = ""
    speed_origin: SpeedSource | None = None

    @property
    def expected_losses(self) -> float | None:
        """Losses an hour of all these machines by own records; None where the rate is assumed."""
        if self.losses_per_hour is None and self.capacity is not None:
            return self.capacity.losses_per_hour
        return self.losses_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(OfferTerms):
    """Terms with the time and cost of the run.

    Attributes:
        seconds: From the request to the last step; waiting for capacity is in it where own requests say how long.
        dollars: Of the machines in that time, and of each other part whose price is known.
        save_interval: Seconds between two checkpoints that cost least.
        parts: Of `dollars`, by MACHINES and other_costs.PARTS; None for what is not known, and so not in it.
    """

    seconds: Estimate
    dollars: Estimate
    save_interval: float
    parts: tuple[tuple[str, Estimate | None], ...] = ()

    @property
    def chips(self) -> int:
        """Chips of all machines."""
        return self.nodes * self.machine.chips

    @property
    def name(self) -> str:
        """The machines, such as `4 x p5.48xlarge`."""
        return self.machine.name if self.nodes == 1 else f"{self.nodes} x {self.machine.name}"

    @property
    def save_every(self) -> int:
        """Steps between two checkpoints that cost least; short runs save four times at least."""
        return max(1, min(round(self.save_interval / self.step_seconds.typical), self.steps // 4))

    def chance_in_time(self, request: OfferRequest) -> float | None:
        """Return the probability that it ends before the deadline; None without one."""
        return None if request.seconds is None else self.seconds.chance_below(request.seconds)


def make_offer(terms: OfferTerms, left: float = 1.0) -> Offer | None:
    """Return an offer with its time and cost; None where machines are lost faster than the run progresses.

    Args:
        terms: What is known of it; an offer is made again from it.
        left: The share of the steps that is to be done.
    """
    losses, steps = terms.expected_losses, terms.steps * left
    own_losses = losses / terms.nodes if losses is not None else None
    risk = assess_risk(terms.nodes * terms.machine.chips, terms.nodes, terms.market, own_losses)
    rented = estimate_duration(terms.step_seconds, steps, risk)  # nothing is paid while there are no machines
    wait = terms.capacity.estimate_wait() if terms.capacity is not None else None
    seconds = rented if wait is None else estimate_duration(terms.step_seconds, steps, add_wait(risk, wait))
    if rented is None or seconds is None:
        return None
    parts = _measure_parts(terms.price_per_hour, terms.other, rented, risk)
    known = [one for one in parts.values() if one is not None]
    given: dict[str, Any] = {field.name: getattr(terms, field.name) for field in fields(OfferTerms)}
    given["losses_per_hour"] = losses
    return Offer(
        **given,
        seconds=seconds,
        dollars=Estimate(
            low=sum(one.low for one in known),
            typical=sum(one.typical for one in known),
            high=sum(one.high for one in known),
        ),
        save_interval=choose_save_interval(risk.per_hour.typical),
        parts=tuple(parts.items()),
    )


def _measure_parts(
    price_per_hour: tuple[float, float], other: OtherCosts, seconds: Estimate, risk: Risk
) -> Mapping[str, Estimate | None]:
    price = Estimate.between(*price_per_hour)
    interval = choose_save_interval(risk.per_hour.typical)
    least, typical, most = (
        other.measure_parts(time, interval=interval, losses_per_hour=losses)
        for time, losses in (
            (seconds.low, risk.per_hour.low),
            (seconds.typical, risk.per_hour.typical),
            (seconds.high, risk.per_hour.high),
        )
    )
    found: dict[str, Estimate | None] = {
        MACHINES: Estimate(
            low=price.low * seconds.low / HOUR,
            typical=price.typical * seconds.typical / HOUR,
            high=price.high * seconds.high / HOUR,
        )
    }
    for part in PARTS:
        values = least[part], typical[part], most[part]
        known = [one for one in values if one is not None]
        found[part] = Estimate(low=known[0], typical=known[1], high=known[2]) if len(known) == len(values) else None
    return found


def choose_offers(offers: Iterable[Offer], request: OfferRequest) -> tuple[Offer, ...]:
    """Return the offers that no other one beats in both time and cost, the cheapest first.

    An offer that may cost more than the budget is left out. With a deadline, so is one that meets it with less than
    SURE, unless none meets it. Of more than MOST_SHOWN the cheapest, the fastest, and some between them are kept.
    """
    kept = [one for one in offers if request.budget is None or one.dollars.high <= request.budget]
    if request.seconds is not None:
        sure = [one for one in kept if one.seconds.chance_below(request.seconds) >= SURE]
        kept = sure or kept
    return _thin_out(find_front(kept))


def find_front(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return those that no other one beats or equals in both typical time and typical cost, the cheapest first."""
    front: list[Offer] = []
    fastest = math.inf
    for one in sorted(offers, key=lambda one: (one.dollars.typical, one.seconds.typical, one.machine.name)):
        if one.seconds.typical < fastest:
            front.append(one)
            fastest = one.seconds.typical
    return tuple(front)


def _thin_out(front: Sequence[Offer]) -> tuple[Offer, ...]:
    if len(front) <= MOST_SHOWN:
        return tuple(front)
    last = len(front) - 1
    return tuple(front[round(number * last / (MOST_SHOWN - 1))] for number in range(MOST_SHOWN))
