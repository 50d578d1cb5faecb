"""The stage of a pipeline that a job runs, as documents name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.store.read import Reader
from orchestrator.store.records import JobRecord, PipelineRecord


def read_pipelines(store: Reader, jobs: Iterable[JobRecord]) -> dict[str, PipelineRecord]:
    """Return the pipelines of jobs by their uids."""
    uids = {job.pipeline for job in jobs if job.pipeline}
    return store.pipelines_by_uid(uids) if uids else {}


def stage_as_json(job: JobRecord, pipelines: Mapping[str, PipelineRecord]) -> dict[str, Any] | None:
    """Return the stage that a job runs, or None for a job of no pipeline on record."""
    record = pipelines.get(job.pipeline)
    if record is None:
        return None
    return {
        "pipeline": record.name,
        "pipeline_id": record.uid,
        "stage": job.stage + 1,
        "stages": len(record.tasks),
        "stage_name": record.name_stage(job.stage) or None,
    }
