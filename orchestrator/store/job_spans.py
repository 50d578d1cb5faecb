"""Which job of a cluster had its machines when."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.store.records import JobRecord


def list_job_spans(jobs: Sequence[JobRecord], now: float) -> tuple[tuple[JobRecord, float, float], ...]:
    """Return the jobs of one cluster with the time that each has its machines, in epoch seconds, in order.

    A job that is queued behind another has them from the other's end on, so that no hour is counted twice.

    Args:
        jobs: All launches and resumes of the cluster.
        now: The end of those that have not ended.
    """
    found: list[tuple[JobRecord, float, float]] = []
    free = float("-inf")
    for job in sorted(jobs, key=lambda job: job.id):
        begin, end = max(job.created, free), job.ended or now
        if end > begin:
            found.append((job, begin, end))
            free = end
    return tuple(found)
