"""The watch lease: one process watches a job, and unattended engines take only unwatched jobs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.engine.loop.session import Session
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store


def watch_lease(store: Store, cluster: ClusterRecord, job: JobRecord, narrator: Narrator) -> LeaseKeeper:
    """Return the keeper of the job's watch lease."""
    return LeaseKeeper(store, f"{cluster.uid}/{job.id}", f"watching '{cluster.name}'", narrator, kind="watch")


@contextmanager
def hold_watch_lease(session: Session) -> Generator[None]:
    """Hold the watch lease of the session's job if it is free.

    Two watchers do no harm: actions are guarded by the cluster's lease.
    """
    if session.job is None:
        yield
        return
    with watch_lease(session.store, session.cluster, session.job, session.narrator) as keeper:
        keeper.try_hold()
        yield
