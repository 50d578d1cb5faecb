"""What an acceptance run costs: before it, as an estimate, and during it, from what was rented how long. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.acceptance.steps import Step
from orchestrator.formatting import format_amount

ENDING_MINUTES = 5.0  # kept in reserve: machines are billed until they are deleted


def estimate_costs(
    steps: Sequence[Step], prices: Mapping[str, float], rented: Collection[str] = ()
) -> dict[str, float]:
    """Return the estimated price in US dollars of each step by its name.

    Args:
        steps: Those that are still to be run.
        prices: US dollars an hour, by cluster.
        rented: Clusters whose machines exist before the first of the steps.
    """
    exists, costs = set(rented), dict[str, float]()
    for step in steps:
        exists |= {step.rents} - {""}
        costs[step.name] = sum_prices(exists, prices) * step.minutes / 60
        exists -= {step.ends}
    return costs


def sum_prices(clusters: Collection[str], prices: Mapping[str, float]) -> float:
    """Return the price of all these clusters together, in US dollars an hour."""
    return sum(prices[cluster] for cluster in clusters)


def compute_allowed_minutes(step: Step, *, minutes_left: float, dollars_left: float, hourly: float) -> float:
    """Return how long a step may take, so that neither time nor price passes its cap.

    Args:
        step: Its own limit holds, too.
        minutes_left: Until the cap in time.
        dollars_left: Until the cap in price.
        hourly: Price of all machines that may exist during the step, in US dollars an hour.
    """
    affordable = dollars_left / hourly * 60 - ENDING_MINUTES if hourly > 0 else step.most_minutes
    return max(0.0, min(step.most_minutes, minutes_left, affordable))


def find_cap(
    steps: Sequence[Step], *, spent: float, prices: Mapping[str, float], rented: Collection[str], max_cost: float
) -> str:
    """Return why the first of these steps must not begin, or "": what is spent and the rest would pass the cap."""
    rest = sum(estimate_costs(steps, prices, rented).values())
    if spent + rest <= max_cost:
        return ""
    return (
        f"{format_amount(spent)} are spent and the remaining steps need about {format_amount(rest)}: "
        f"more than {format_amount(max_cost)}"
    )
