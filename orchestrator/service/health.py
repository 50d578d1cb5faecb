"""The routes for machines that watch the service: whether it lives, whether it works, and its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from orchestrator.plan.observed import FINAL_STATES
from orchestrator.service.route import Answer, Call
from orchestrator.summaries.clusters import summarize_cluster


def show_health(_call: Call) -> Answer:
    """Answer that the process lives."""
    return Answer(text="ok\n")


def show_readiness(call: Call) -> Answer:
    """Answer whether the store can be read. Raises OrchError when it cannot."""
    with call.open_reader() as store:
        store.head()
    return Answer(text="ready\n")


def show_metrics(call: Call) -> Answer:
    """Answer with numbers in the text format of Prometheus."""
    with call.open_reader() as store:
        summaries = [summarize_cluster(store, record) for record in store.clusters()]
        job_states = store.count_jobs()
        seq = store.head().seq
    states = Counter(one.state for one in summaries)
    prices = [one.price_per_hour for one in summaries]
    hosts = sum(one.current.candidate.hosts for one in summaries if one.current is not None)
    live = [one.current for one in summaries if one.current is not None and one.current.state not in FINAL_STATES]
    known = sum(price for price in prices if price is not None)
    lines = [
        *_family("orch_clusters", "Open clusters by state.", _label("state", states)),
        *_family("orch_hosts", "Hosts of open clusters.", {"": hosts}),
        *_family("orch_jobs", "Launches and resumes by state.", _label("state", job_states)),
        *_family("orch_price_dollars_per_hour", "List price of what is billed now, where it is known.", {"": known}),
        *_family("orch_prices_not_known", "Clusters whose price is not known.", {"": prices.count(None)}),
        *_family("orch_slices", "Slices that exist or may exist.", {"": len(live)}),
        *_family("orch_events_total", "Events of the audit.", {"": seq}, kind="counter"),
    ]
    return Answer(text="\n".join(lines) + "\n")


def _label(name: str, counts: Mapping[str, int]) -> dict[str, float]:
    return {f'{name}="{value}"': count for value, count in sorted(counts.items())}


def _family(name: str, meaning: str, values: Mapping[str, float], kind: str = "gauge") -> list[str]:
    shown = [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in values.items()]
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *shown]
