"""Reads what notifications are made from: events, the records that they name, and the state of existing clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from orchestrator.notifications.conditions import (
    ClusterHistory,
    Condition,
    find_budget_condition,
    may_wait_for_machines,
)
from orchestrator.notifications.notices import Notice, Records, find_cluster_uid, find_notices
from orchestrator.plan.spending_budget import measure_usage
from orchestrator.store.budget_records import list_billed_slices
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord, JobRecord

_PAGE = 500  # events
_PAGES = 20  # that are read before something is delivered
_EVENTS = 1000  # the newest of a cluster, in which the begin of a wait is looked for


def read_notices(
    reader: Reader, after: int, read_progress: Callable[[JobRecord], str] = lambda _job: ""
) -> tuple[tuple[Notice, ...], int]:
    """Return the notices past an event, and the last event that was read; `after` when there was none.

    Args:
        reader: Open.
        after: The event.
        read_progress: Returns what the output of a job says; "" for nothing.
    """
    found: list[Notice] = []
    for _ in range(_PAGES):
        events = reader.events_after(after, _PAGE)
        if not events:
            break
        found += find_notices(events, replace(_read_records(reader, events), read_progress=read_progress))
        after = events[-1].seq
        if len(events) < _PAGE:
            break
    return tuple(found), after


def read_histories(reader: Reader) -> Iterator[ClusterHistory]:
    """Yield what is on record of each existing cluster that has machines or a job."""
    for cluster in reader.clusters():
        jobs = tuple(job for job in reader.jobs(cluster) if job.state != "ended")
        waits = any(map(may_wait_for_machines, jobs))
        yield ClusterHistory(
            cluster=cluster,
            intents=reader.intents(cluster),
            jobs=jobs,
            events=reader.events(cluster.qualified_name, limit=_EVENTS) if waits else (),
        )


def read_budget_conditions(reader: Reader, near: float, now: float) -> Iterator[Condition]:
    """Yield the conditions of budgets; see conditions.find_budget_condition."""
    budgets = reader.budgets()
    slices = list_billed_slices(reader, now) if budgets else ()
    for budget in budgets:
        if (found := find_budget_condition(budget, measure_usage(budget, slices, now), near, now)) is not None:
            yield found


def _read_records(reader: Reader, events: Sequence[EventRecord]) -> Records:
    uids = {uid for uid in map(find_cluster_uid, events) if uid}
    clusters = reader.clusters_by_uid(uids) if uids else {}
    return Records(clusters=clusters, jobs={uid: reader.jobs(record) for uid, record in clusters.items()})
