"""Every change of the durable memory. A change and the event that tells of it are one transaction.

Changes of a cluster's machines take a Lease and are refused when it is no longer ours (leases.check).
"""

from __future__ import annotations

from orchestrator.store.cluster_changes import ClusterChanges
from orchestrator.store.job_changes import JobChanges
from orchestrator.store.pipeline_changes import PipelineChanges


class Store(ClusterChanges, JobChanges, PipelineChanges):
    """Use as a context manager. Opened like Ledger: Store(location, now, lease_seconds=..., doing=...)."""

    def __enter__(self) -> Store:
        return self
