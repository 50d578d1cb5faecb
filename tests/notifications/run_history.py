"""Runs on record, made with the store's own changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.slices import Candidate, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.store.store import Store

PLACE = Candidate(
    provider="google", accelerator="v5litepod-16", hosts=4, chips_per_host=4, market=Spot(), price_per_hour=10.0,
    zone="us-west4-a",
)  # fmt: skip
SUCCESS = Outcome(status=0, code="", what="the program succeeded on all hosts")
FAILURE = Outcome(
    status=1, code="program", what="program failed on worker1", why="exit 1: \x1b]0;title\x07out of memory",
    next_step=NextStep("orch logs mine 1"),
)  # fmt: skip


@dataclass
class Clock:
    """The time that the store writes."""

    at: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class History:
    """A store that a test writes to.

    Attributes:
        clock: Its time.
    """

    store: Store
    clock: Clock
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])

    def cluster(self, name: str = "mine") -> ClusterRecord:
        return self.store.open_cluster(name, "4 hosts")

    def job(self, cluster: ClusterRecord, run_id: str = "llama-1", kind: str = "launch") -> JobRecord:
        new = NewJob(kind=kind, run_id=run_id, digest="d", task="", bucket="", ranks=None, after_end="keep")
        return self.store.open_job(cluster, new)

    def start(self, cluster: ClusterRecord, job: JobRecord) -> None:
        self.store.start_attempt(cluster, job.id)

    def end(self, cluster: ClusterRecord, job: JobRecord, outcome: Outcome = SUCCESS) -> None:
        self.store.record_outcome(cluster, job.id, outcome)

    def lose(self, cluster: ClusterRecord, job: JobRecord, cause: EndCause, attempt: int = 1) -> None:
        ended = EndedAttempt(attempt=attempt, cause=cause, why="the provider took host 3 back")
        self.store.end_attempt(cluster, job.id, ended)
        self.store.next_attempt(cluster, job.id, ended, attempt + 1)

    def slice(
        self, cluster: ClusterRecord, generation: int, *states: IntentState, cause: EndCause | None = None
    ) -> None:
        lease = self.leases.get(cluster.uid) or self._lease(cluster)
        name = f"{cluster.name}-{generation}"
        if not any(intent.generation == generation for intent in self.store.intents(cluster)):
            self.store.write_intent(lease, cluster, generation, name, PLACE, f"{cluster.uid}-{generation}", "request")
        for state in states:
            self.store.update_intent(lease, cluster, name, state, cause, "taken back" if cause else "")

    def run(self, name: str = "mine", outcome: Outcome = SUCCESS) -> JobRecord:
        """A whole run."""
        cluster = self.cluster(name)
        job = self.job(cluster, f"run-of-{name}")
        self.start(cluster, job)
        self.end(cluster, job, outcome)
        return job

    def _lease(self, cluster: ClusterRecord) -> Lease:
        lease = self.store.acquire(f"cluster:{cluster.qualified_name}", "launch")
        assert isinstance(lease, Lease)
        self.leases[cluster.uid] = lease
        return lease


MakeHistory = Callable[[], History]
