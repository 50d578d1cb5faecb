"""Summarize one cluster from its records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.documents.output_forms import OutputProgress
from orchestrator.formatting import format_price
from orchestrator.messages import count_noun
from orchestrator.plan.observed import FINAL_STATES, EndedAttempt, Intent, IntentState
from orchestrator.slices import SliceState
from orchestrator.store.lookup import find_current_job
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord

LEASE = "cluster:{name}"  # the name under which engine/state/lease.py holds a cluster while it works on it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """The state of one cluster.

    Attributes:
        state_at: When the state was observed, in epoch seconds.
        ended: Earlier attempts of the current job.
        busy_with: Who works on the cluster now; "" when it is free.
        output: What the output of the current job says; None where it says nothing, or was not read.
        abandoned: The job whose command ended before its program began, so that nothing waits for its machines.
    """

    cluster: ClusterRecord
    state: str
    state_at: float
    slices: tuple[Intent, ...]
    jobs: tuple[JobRecord, ...] = ()
    ended: tuple[EndedAttempt, ...] = ()  # earlier attempts of the current job
    busy_with: str = ""
    abandoned: JobRecord | None = None
    output: OutputProgress | None = None

    @property
    def current(self) -> Intent | None:
        live = [intent for intent in self.slices if intent.state not in FINAL_STATES]
        return live[-1] if live else None

    @property
    def current_job(self) -> JobRecord | None:
        return find_current_job(self.jobs)

    @property
    def has_open_job(self) -> bool:
        """Whether a job waits or runs."""
        return any(job.state != "ended" for job in self.jobs)

    @property
    def price_per_hour(self) -> float | None:
        """Return the price of the machines that are billed now: 0 without any, None when it is not known."""
        if self.current is None:
            return 0.0
        return None if self.stopped else self.current.candidate.price_per_hour

    @property
    def has_billed_machines(self) -> bool:
        """Whether machines, or their disks, are billed now."""
        return self.current is not None and self.current.billed_from is not None

    @property
    def stopped(self) -> bool:
        """Whether its machines exist and are stopped: then only their disks are billed."""
        return self.current is not None and self.state == SliceState.STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidPerHour:
    """What the machines of some clusters cost an hour now, in list prices of the machines alone.

    Attributes:
        dollars: The sum of the prices that are known.
        unknown: Number of clusters with machines whose price is not known, such as stopped ones, whose disks cost.
    """

    dollars: float
    unknown: int

    def __str__(self) -> str:
        """Return `$7.68/h`; a price that is not known is never counted as 0 without a word."""
        missing = f"{count_noun(self.unknown, 'cluster')} whose price is not known"
        if self.dollars or not self.unknown:
            return format_price(self.dollars) + (f" and {missing}" if self.unknown else "")
        return missing


def sum_prices(summaries: Iterable[ClusterSummary]) -> PaidPerHour:
    """Return what is paid an hour now for the machines of clusters."""
    prices = [item.price_per_hour for item in summaries if item.has_billed_machines]
    return PaidPerHour(dollars=sum(one for one in prices if one is not None), unknown=prices.count(None))


def sum_prices_of(store: Reader, clusters: Sequence[ClusterRecord]) -> PaidPerHour:
    """Return what is paid an hour now for the machines of clusters, from the records of their slices alone."""
    slices = store.intents_by_uid([record.uid for record in clusters])
    return sum_prices(_summarize_machines(record, slices.get(record.uid, ())) for record in clusters)


def _summarize_machines(cluster: ClusterRecord, slices: tuple[Intent, ...]) -> ClusterSummary:
    state, at = _state(cluster, slices)
    return ClusterSummary(cluster=cluster, state=state, state_at=at, slices=slices)


def summarize_cluster(store: Reader, cluster: ClusterRecord) -> ClusterSummary:
    """Read the records of a cluster and summarize them."""
    slices = store.intents(cluster)
    jobs = store.jobs(cluster)
    current = find_current_job(jobs)
    busy_with = store.lease_holder(LEASE.format(name=cluster.qualified_name))
    return replace(
        _summarize_machines(cluster, slices),
        jobs=jobs,
        ended=store.ended_attempts(cluster, current.id) if current is not None else (),
        busy_with=busy_with,
        abandoned=None if busy_with else _find_abandoned_job(store, cluster, slices, jobs),
    )


def find_passed_limit(item: ClusterSummary, now: float) -> str:
    """Return which limit has passed since the machines were last seen, so that they may have ended; "" for none.

    The hosts themselves act on a limit, without a process of orch that would record it.
    """
    intent = item.current
    if intent is None or item.state != SliceState.READY or item.busy_with:
        return ""
    limits: dict[str, float] = json.loads(item.cluster.limits)
    ends: list[tuple[str, float]] = []
    if (hours := limits.get("max_hours")) is not None:
        ends.append((f"{hours:g} h of machine time", intent.since + hours * 3600))
    if (minutes := limits.get("idle_minutes")) is not None and not item.has_open_job:
        busy_until = max([intent.since, *(job.ended for job in item.jobs if job.ended is not None)])
        ends.append((f"{minutes:g} min without a job", busy_until + minutes * 60))
    return next((what for what, at in ends if item.state_at < at < now), "")


def describe_abandoned_job(cluster: str, job: int) -> tuple[str, str]:
    """Return what continues a job that its command left before its program began, and what ends its machines."""
    return (
        f"orch watch {cluster} {job}   continues job {job}, whose command ended before the program began",
        f"orch down {cluster}   ends the machines, which cost money until then",
    )


def _find_abandoned_job(
    store: Reader, cluster: ClusterRecord, slices: Sequence[Intent], jobs: Sequence[JobRecord]
) -> JobRecord | None:
    if cluster.desired_state != "up" or all(intent.state in FINAL_STATES for intent in slices):
        return None
    begun = [job for job in jobs if job.state != "ended" and job.kind != "exec"]
    if not begun or begun[0].started or begun[0].watch:
        return None
    return None if store.lease_holder(f"watch:{cluster.uid}/{begun[0].id}") else begun[0]


def _state(cluster: ClusterRecord, slices: tuple[Intent, ...]) -> tuple[str, float]:
    live = [intent for intent in slices if intent.state not in FINAL_STATES]
    if not live:
        return ("no hosts", slices[-1].since) if slices else ("new", cluster.created)
    intent = live[-1]
    if intent.state is not IntentState.ACCEPTED:
        return str(intent.state), intent.since
    if cluster.last_state and cluster.last_seen >= intent.since:
        return cluster.last_state, cluster.last_seen
    return "creating", intent.since


def describe_job(job: JobRecord | None) -> str:
    """Return `3 running, attempt 2`, `3 exit 0`, or `-` for none."""
    if job is None:
        return "-"
    if job.state == "ended":
        return f"{job.id} exit {job.status}"
    return f"{job.id} {job.state}" + (f", attempt {job.attempt}" if job.attempt > 1 else "")
