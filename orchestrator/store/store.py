"""The store for writing. A change and its event are one transaction.

Changes of a cluster's machines take a Lease and are refused when it is no longer ours (leases.check).
"""

from __future__ import annotations

from orchestrator.store.admission_changes import AdmissionChanges
from orchestrator.store.bill_changes import BillChanges
from orchestrator.store.blob_changes import BlobChanges
from orchestrator.store.channel_changes import ChannelChanges
from orchestrator.store.checkpoint_trust import CheckpointTrust
from orchestrator.store.cluster_changes import ClusterChanges
from orchestrator.store.host_pin_changes import HostPinChanges
from orchestrator.store.job_changes import JobChanges
from orchestrator.store.order_changes import OrderChanges
from orchestrator.store.pipeline_changes import PipelineChanges
from orchestrator.store.progress_changes import ProgressChanges
from orchestrator.store.recovery_changes import RecoveryChanges
from orchestrator.store.run_keys import RunKeys
from orchestrator.store.session_changes import SessionChanges
from orchestrator.store.setting_changes import SettingChanges
from orchestrator.store.sign_in_changes import SignInChanges


class Store(
    ClusterChanges,
    JobChanges,
    PipelineChanges,
    OrderChanges,
    HostPinChanges,
    AdmissionChanges,
    SessionChanges,
    SignInChanges,
    RunKeys,
    CheckpointTrust,
    BlobChanges,
    ProgressChanges,
    ChannelChanges,
    BillChanges,
    RecoveryChanges,
    SettingChanges,
):
    """All changes of all tables, used as a context manager. The arguments are those of Ledger."""

    def __enter__(self) -> Store:
        return self
