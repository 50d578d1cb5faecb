"""Observing a cluster now, and recording it, without changing anything there."""

from __future__ import annotations

from orchestrator.engine.loop.finished_jobs import record_finished_jobs
from orchestrator.engine.loop.observe import observe
from orchestrator.engine.loop.session import Session
from orchestrator.engine.loop.transfer import recording_transfer, refuse_if_taken_over
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.services import real_services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Cancel
from orchestrator.plan.facts import Facts
from orchestrator.plan.host_version import find_other_version
from orchestrator.plan.observed import Observed
from orchestrator.store.lookup import find_cluster


def refresh_cluster(cluster: str, narrator: Narrator, project: str = "") -> Observed:
    """Observe the slice and each host's contact and job; record jobs that ended unwatched.

    Takes no lease: it only records what it sees. A record whose machines were taken over is closed, under the lease.

    Args:
        cluster: The cluster's name.
        narrator: Gets notes.
        project: The cluster's project; "" for that of the environment.

    Raises:
        NotFoundError: There is no such cluster.
        TakenOverError: Another installation has taken its machines over.
        OrchError: A folder on its hosts is of another version.
    """
    where = load_paths()
    services = real_services(where)
    with (
        open_store(where, services, project=project) as store,
        LeaseKeeper(store, cluster, "status", narrator) as keeper,
    ):
        record = find_cluster(store, cluster)
        open_jobs = [job for job in store.jobs(record) if job.state != "ended" and job.started]
        folder = f"{open_jobs[-1].id}-a{open_jobs[-1].attempt}" if open_jobs else ""
        sought = Cancel(cluster=cluster, folder=folder)
        session = Session(store, where, narrator, keeper, record, sought, Facts({}), None, services)
        try:
            record_finished_jobs(session)
            observed = observe(session)
            with recording_transfer(session):
                refuse_if_taken_over(session)
            if (refused := find_other_version(cluster, observed.hosts)) is not None:
                raise refused.make_error()
            return observed
        finally:
            session.close()
