"""Names and identifiers: those made at launch, shown as unknowns in a preview, and those built from them."""

from __future__ import annotations

import re
import secrets
import time

from orchestrator.computer import identify_place
from orchestrator.paths import load_paths
from orchestrator.plan.observed import Intent
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.store.uids import END, derive_uid_end
from orchestrator.values import Unknown

UID = Unknown("cluster id, made at launch")
RUN_ID = Unknown("run id, made at launch")
RUN_KEY = Unknown("key of the run, made at launch", secret="ORCH_RUN_KEY")  # noqa: S106  # its name
INSTALLATION = Unknown("installation id, made at first launch")

# Of a cluster's name, in the names of its slices: with "-3fa2b1-1" behind it, these stay within the 45 characters that
# a group of instances of Compute Engine leaves, see providers/google/compute/parts.py.
_LONGEST_IN_STEM = 33
# Compute Engine documentation, "Requirements for labels", 2025; EC2 allows more.
_LONGEST_LABEL = 63


def host_job_name(cluster_uid: str, job: str) -> str:
    """Return the name of a job's folder on the hosts, e.g. "c91f02aa-1-a1".

    The user's own hosts outlive a cluster, and two clusters may share them, so a job number alone could name another
    cluster's job.
    """
    return f"{cluster_uid[:8]}-{job}"


def slice_stem(cluster: str, uid: str) -> str:
    """Return what the names of a cluster's slices begin with: its name and the end of its uid."""
    return f"{cluster[:_LONGEST_IN_STEM].rstrip('-')}-{uid[-END:]}"


def plan_slice_stem(reader: Reader, cluster: str) -> str:
    """Return the stem of a cluster's slices as it is, or as it will be when the cluster is opened from here."""
    record = reader.cluster(cluster)
    if record is not None:
        return slice_stem(cluster, record.uid)
    place = identify_place(load_paths().state)
    return slice_stem(cluster, derive_uid_end(place, reader.project, cluster, reader.count_clusters(cluster)))


def member_label(member: str) -> str:
    """Return a member's name as a label has it: never a whole e-mail, and only what every cloud allows."""
    return re.sub(r"[^a-z0-9_-]", "-", member.lower().partition("@")[0])[:_LONGEST_LABEL]


def slice_token(cluster: ClusterRecord, intent: Intent) -> str:
    """Return the idempotency token of a slice: the recorded one, which that of a slice taken over has kept."""
    return intent.token or f"{cluster.uid}-{intent.generation}"


def new_run_id(cluster: str) -> str:
    """Make a run id: readable, sortable by time, and unique. A run keeps it over all attempts."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
