"""The rule by which a source of a program's output is chosen, for commands of this computer and for services.

All sources count bytes as the file on the host does, so a reader may change the source, or the server, in the middle.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from orchestrator.engine.state.following import is_followed
from orchestrator.paths import load_paths
from orchestrator.slices import SliceState
from orchestrator.store.records import ClusterRecord, JobRecord


class OutputSource(StrEnum):
    """Where the output of a program is read."""

    KEPT = "the copies on this computer"
    HOSTS = "the hosts"
    BUCKET = "the bucket of the run"


def is_absent(record: ClusterRecord) -> bool:
    """Return whether a cluster has no hosts that could be asked."""
    return not record.hosts or record.last_state == SliceState.STOPPED


def find_attempt_folder(job: JobRecord) -> Path:
    """Return the folder of the copies of the present attempt."""
    return load_paths().logs(job.cluster_uid, job.id) / f"attempt-{job.attempt:04d}"


def choose_source(record: ClusterRecord, job: JobRecord) -> OutputSource:
    """Return where the output of a job's program is read.

    A process of this computer that follows the hosts keeps everything. Otherwise the hosts are asked, while they exist.
    Then the bucket has what the engine that drove the job had kept at its end.
    """
    folder = find_attempt_folder(job)
    if is_followed(folder):
        return OutputSource.KEPT
    if not is_absent(record):
        return OutputSource.HOSTS
    return OutputSource.BUCKET if job.bucket and job.started and not folder.exists() else OutputSource.KEPT
