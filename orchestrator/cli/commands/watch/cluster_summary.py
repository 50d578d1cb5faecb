"""Summarize one cluster from its records, for `status` as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    cluster: ClusterRecord
    state: str
    state_at: float
    slices: tuple[Intent, ...]
    jobs: tuple[JobRecord, ...]
    ended: tuple[EndedAttempt, ...]  # earlier attempts of the current job
    busy_with: str

    @property
    def current(self) -> Intent | None:
        live = [intent for intent in self.slices if intent.state not in FINAL_STATES]
        return live[-1] if live else None

    @property
    def current_job(self) -> JobRecord | None:
        return find_current_job(self.jobs)

    @property
    def price_per_hour(self) -> float | None:
        """Return the price of the machines that are billed now: 0 without any, None when it is not known."""
        if self.current is None:
            return 0.0
        return None if self.stopped else self.current.candidate.price_per_hour

    @property
    def stopped(self) -> bool:
        """Whether its machines exist and are stopped: then only their disks are billed."""
        return self.current is not None and self.state == SliceState.STOPPED


def summarize_cluster(store: Reader, cluster: ClusterRecord) -> ClusterSummary:
    """Read the records of a cluster and summarize them."""
    slices = store.intents(cluster)
    jobs = store.jobs(cluster)
    current = find_current_job(jobs)
    state, at = _state(cluster, slices)
    return ClusterSummary(
        cluster=cluster,
        state=state,
        state_at=at,
        slices=slices,
        jobs=jobs,
        ended=store.ended_attempts(cluster, current.id) if current is not None else (),
        busy_with=store.lease_holder(LEASE.format(name=cluster.qualified_name)),
    )


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
