"""Names that are made at launch and stand as unknowns in a preview, and names made from them."""

from __future__ import annotations

import secrets
import time

from orchestrator.store.records import ClusterRecord
from orchestrator.values import Unknown

UID = Unknown("cluster id, made at launch")
RUN_ID = Unknown("run id, made at launch")
INSTALLATION = Unknown("installation id, made at first launch")


def host_job(cluster_uid: str, job: str) -> str:
    """The name of a job's folder on the hosts, e.g. "c91f02aa-1-a1".

    The user's own hosts outlive a cluster, and two clusters may share them: a number alone would meet another's job.
    """
    return f"{cluster_uid[:8]}-{job}"


def token_of(cluster: ClusterRecord, generation: int) -> str:
    """Of a slice: the same as decide() puts into its create."""
    return f"{cluster.uid}-{generation}"


def new_run_id(cluster: str) -> str:
    """Made once per run and kept over every attempt and resume: readable, sortable by time, unique."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
