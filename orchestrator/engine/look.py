"""Asking the provider and the hosts how a cluster is, and noting it, without changing anything there."""

from __future__ import annotations

from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.observe import observe
from orchestrator.engine.opening import open_store
from orchestrator.engine.session import Session
from orchestrator.engine.settle import settle
from orchestrator.engine.world import real_world
from orchestrator.errors import NotFoundError
from orchestrator.paths import paths
from orchestrator.plan.desired import Cancel
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Observed


def refresh(cluster: str, narrator: Narrator) -> Observed:
    """Look now: the state of the slice, each host's contact and job; jobs that ended unwatched are recorded.

    Takes no lease: it only notes what it sees. Raises NotFoundError.
    """
    where = paths()
    world = real_world(where)
    with open_store(where, world) as store:
        record = store.cluster(cluster)
        if record is None:
            raise NotFoundError(f"there is no cluster '{cluster}'", next_step="orch status")
        keeper = LeaseKeeper(store, cluster, "status", narrator)
        open_jobs = [job for job in store.jobs(record) if job.state != "ended" and job.started]
        folder = f"{open_jobs[-1].id}-a{open_jobs[-1].attempt}" if open_jobs else ""
        sought = Cancel(cluster, folder)
        session = Session(store, where, narrator, keeper, record, sought, Facts({}), None, world)
        try:
            settle(session)
            return observe(session)
        finally:
            session.close()
