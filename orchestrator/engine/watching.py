"""Who watches a job: one process holds its watch lease, and unattended engines take only jobs that nobody watches."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.session import Session
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store


def watch_lease(store: Store, cluster: ClusterRecord, job: JobRecord, narrator: Narrator) -> LeaseKeeper:
    return LeaseKeeper(store, f"{cluster.uid}/{job.id}", f"watching '{cluster.name}'", narrator, kind="watch")


@contextmanager
def watching(session: Session) -> Generator[None]:
    """Hold the watch lease of the session's job if it is free. Two who watch do no harm: steps have their own lease."""
    if session.job is None:
        yield
        return
    with watch_lease(session.store, session.cluster, session.job, session.narrator) as keeper:
        keeper.try_hold()
        yield
