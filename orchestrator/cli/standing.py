"""How one cluster stands, put together from its records: what `status` draws and prints as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.plan.observed import FINAL, Ended, Intent, IntentState
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord

LEASE = "cluster:{name}"  # the name under which engine/lease.py holds a cluster while it works on it


@dataclass(frozen=True, slots=True)
class Standing:
    """working: who works on it now, in words, or "". state_at: when that state was seen (epoch seconds)."""

    cluster: ClusterRecord
    state: str
    state_at: float
    slices: tuple[Intent, ...]
    jobs: tuple[JobRecord, ...]
    ended: tuple[Ended, ...]  # earlier attempts of the last job
    working: str

    @property
    def current(self) -> Intent | None:
        live = [intent for intent in self.slices if intent.state not in FINAL]
        return live[-1] if live else None

    @property
    def last_job(self) -> JobRecord | None:
        return self.jobs[-1] if self.jobs else None

    @property
    def price_per_hour(self) -> float | None:
        """Of what is there now; 0 when nothing is."""
        return self.current.candidate.price_per_hour if self.current is not None else 0.0


def stand(store: Reader, cluster: ClusterRecord) -> Standing:
    slices = store.intents(cluster)
    jobs = store.jobs(cluster)
    state, at = _state(cluster, slices)
    return Standing(
        cluster,
        state,
        at,
        slices,
        jobs,
        store.ended(cluster, jobs[-1].id) if jobs else (),
        store.lease_holder(LEASE.format(name=cluster.name)),
    )


def _state(cluster: ClusterRecord, slices: tuple[Intent, ...]) -> tuple[str, float]:
    live = [intent for intent in slices if intent.state not in FINAL]
    if not live:
        return ("no hosts", slices[-1].since) if slices else ("new", cluster.created)
    intent = live[-1]
    if intent.state is not IntentState.ACCEPTED:
        return str(intent.state), intent.since
    if cluster.last_state and cluster.last_seen >= intent.since:
        return cluster.last_state, cluster.last_seen
    return "creating", intent.since


def job_words(job: JobRecord | None) -> str:
    """`3 running, attempt 2`; `3 exit 0`; `-` for none."""
    if job is None:
        return "-"
    if job.state == "ended":
        return f"{job.id} exit {job.status}"
    return f"{job.id} {job.state}" + (f", attempt {job.attempt}" if job.attempt > 1 else "")
