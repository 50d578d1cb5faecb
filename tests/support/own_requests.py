"""Requests for machines on record, by which orch judges whether machines are likely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import CapacityError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState
from orchestrator.plan.refusals import Refusal
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.slices import Candidate
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store


def record_requests(
    database: Path,
    now: Callable[[], float],
    place: Candidate,
    got: int,
    refused: int = 0,
    project: str = DEFAULT_PROJECT,
) -> None:
    """Record requests for these machines in the last days: some got them, some did not."""
    refusal = str(Refusal.from_error(CapacityError("no machines", "stockout", "wait")))
    with Store(database, now, project=project) as store:
        for number in range(got + refused):
            name = f"d{number}"
            cluster = store.open_cluster(name, "")
            lease = store.acquire(f"cluster:{cluster.qualified_name}", "test")
            assert isinstance(lease, Lease)
            store.write_intent(lease, cluster, 1, f"{name}-1", place, f"{cluster.uid}-1", "{}")
            if number >= got:
                store.update_intent(lease, cluster, f"{name}-1", IntentState.REFUSED, EndCause.REFUSED, refusal)
                continue
            store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
            job = NewJob(
                kind="launch", run_id=name, digest=name, task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
            )
            store.start_attempt(cluster, store.open_job(cluster, job).id)
            for state in (IntentState.ENDING, IntentState.DELETED):
                store.update_intent(lease, cluster, f"{name}-1", state, EndCause.REQUESTED, "asked")
