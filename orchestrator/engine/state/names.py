"""Names and identifiers: those made at launch, shown as unknowns in a preview, and those built from them."""

from __future__ import annotations

import secrets
import time

from orchestrator.plan.observed import Intent
from orchestrator.store.records import ClusterRecord
from orchestrator.values import Unknown

UID = Unknown("cluster id, made at launch")
RUN_ID = Unknown("run id, made at launch")
INSTALLATION = Unknown("installation id, made at first launch")


def host_job_name(cluster_uid: str, job: str) -> str:
    """Return the name of a job's folder on the hosts, e.g. "c91f02aa-1-a1".

    The user's own hosts outlive a cluster, and two clusters may share them, so a job number alone could name another
    cluster's job.
    """
    return f"{cluster_uid[:8]}-{job}"


def slice_token(cluster: ClusterRecord, intent: Intent) -> str:
    """Return the idempotency token of a slice: the recorded one, which that of a slice taken over has kept."""
    return intent.token or f"{cluster.uid}-{intent.generation}"


def new_run_id(cluster: str) -> str:
    """Make a run id: readable, sortable by time, and unique. A run keeps it over all attempts."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
