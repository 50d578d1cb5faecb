"""The numbers of a service, for Prometheus and what reads its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.documents.clusters import summarize_cluster
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.store.read import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number, or one for each value of a label.

    Attributes:
        label: Name of the label; "" for none.
        values: By value of the label; "" where there is none.
        is_counter: Whether it only grows.
    """

    name: str
    meaning: str
    values: Mapping[str, float]
    label: str = ""
    is_counter: bool = False


def read_measures(store: Reader) -> tuple[Measure, ...]:
    """Return the numbers of a store."""
    summaries = [summarize_cluster(store, record) for record in store.clusters()]
    prices = [one.price_per_hour for one in summaries]
    current = [one.current for one in summaries if one.current is not None]
    hosts = sum(one.candidate.hosts for one in current)
    live = sum(one.state not in FINAL_STATES for one in current)
    known = sum(price for price in prices if price is not None)
    states = Counter(one.state for one in summaries)
    return (
        Measure(name="orch_clusters", meaning="Open clusters by state.", values=states, label="state"),
        Measure(name="orch_hosts", meaning="Hosts of open clusters.", values={"": hosts}),
        Measure(name="orch_jobs", meaning="Launches and resumes by state.", values=store.count_jobs(), label="state"),
        Measure(
            name="orch_price_dollars_per_hour",
            meaning="List price of what is billed now, where it is known.",
            values={"": known},
        ),
        Measure(
            name="orch_prices_not_known", meaning="Clusters whose price is not known.", values={"": prices.count(None)}
        ),
        Measure(name="orch_slices", meaning="Slices that exist or may exist.", values={"": live}),
        Measure(
            name="orch_events_total", meaning="Events of the audit.", values={"": store.count_events()}, is_counter=True
        ),
    )
