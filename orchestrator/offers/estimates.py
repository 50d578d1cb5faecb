"""How long a run takes with everything around its steps: set-up, saves, and machines that are lost.

The formulas are those of Young (1974) and Daly (2006) for the best interval between two checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from orchestrator.slices import Market, Spot

HOUR = 3600.0
_TENTHS = NormalDist().inv_cdf(0.9)  # low and high are read as the tenth and the ninetieth percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A quantity that is not known exactly."""

    low: float
    typical: float
    high: float

    @classmethod
    def between(cls, low: float, high: float) -> Estimate:
        """Return the estimate between two bounds above 0; the typical value is their geometric mean."""
        return cls(low=low, typical=math.sqrt(low * high), high=high)

    def chance_below(self, bound: float) -> float:
        """Return the probability that the quantity is at most `bound`: log-normal between low and high."""
        if bound <= 0:
            return 0.0
        if self.low >= self.high:
            return 1.0 if self.typical <= bound else 0.0
        spread = math.log(self.high / self.low) / (2 * _TENTHS)
        return NormalDist().cdf(math.log(bound / self.typical) / spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What a group of machines loses.

    Attributes:
        per_hour: Losses that end the attempt, in an hour.
        restart: Seconds from a loss to the next step; waiting for capacity is in it after add_wait.
    """

    per_hour: Estimate
    restart: Estimate


# Of one device: 419 unexpected interruptions in 54 days on 16,384 H100 (The Llama 3 Herd of Models, 2024, 3.3.4).
_DEVICE_LOSSES = 419 / (54 * 24 * 16_384)
# Of one spot instance or slice: assumed. No cloud publishes the rate for accelerators.
_SPOT_LOSSES = Estimate(low=0.01, typical=0.05, high=0.2)
SPOT_ASSUMPTION = "assumed: each spot instance or slice is lost once in 5 to 100 hours; no cloud publishes the rate"
# New machines, set-up and the last checkpoint: assumed.
RESTART = Estimate(low=180, typical=480, high=1500)
SAVE_STALL = 2.0  # seconds that a save keeps the steps waiting: assumed; 0.07 s in docs/performance.md


def assess_risk(devices: int, nodes: int, market: Market, own_losses: float | None = None) -> Risk:
    """Return what a group of machines loses.

    Args:
        devices: Chips of all machines.
        nodes: Instances or slices, each of which a cloud can take back by itself.
        market: How they are rented.
        own_losses: Of one such slice in an hour, by own records; None where they say nothing.
    """
    broken = devices * _DEVICE_LOSSES
    taken = _SPOT_LOSSES if isinstance(market, Spot) else Estimate(low=0, typical=0, high=0)
    if own_losses is not None:  # a few losses give a rate to within a factor of two
        taken = Estimate(low=own_losses / 2, typical=own_losses, high=2 * own_losses)
    per_hour = Estimate(
        low=broken / 3 + nodes * taken.low,
        typical=broken + nodes * taken.typical,
        high=3 * broken + nodes * taken.high,
    )
    return Risk(per_hour=per_hour, restart=RESTART)


def add_wait(risk: Risk, wait: Estimate) -> Risk:
    """Return the risk with restarts that take as long as own requests waited, set-up included."""
    longer = Estimate(
        low=max(risk.restart.low, wait.low),
        typical=max(risk.restart.typical, wait.typical),
        high=max(risk.restart.high, wait.high),
    )
    return replace(risk, restart=longer)


def choose_save_interval(losses_per_hour: float) -> float:
    """Return the seconds between two checkpoints at which saves and repeated steps cost least, at most an hour."""
    if losses_per_hour <= 0:
        return HOUR
    return min(HOUR, math.sqrt(2 * SAVE_STALL * HOUR / losses_per_hour))


def estimate_duration(step_seconds: Estimate, steps: float, risk: Risk) -> Estimate | None:
    """Return the seconds from the request to the last step; None where losses come faster than progress.

    Waiting for capacity is not in it.
    """
    interval = choose_save_interval(risk.per_hour.typical)

    def one(step: float, losses: float, restart: float) -> float:
        lost = losses / HOUR * (restart + interval / 2)
        progress = 1 - lost - SAVE_STALL / interval
        return restart + steps * step / progress if progress > 0.05 else math.inf  # below it the formula ends

    found = Estimate(
        low=one(step_seconds.low, risk.per_hour.low, risk.restart.low),
        typical=one(step_seconds.typical, risk.per_hour.typical, risk.restart.typical),
        high=one(step_seconds.high, risk.per_hour.high, risk.restart.high),
    )
    return found if math.isfinite(found.high) else None
