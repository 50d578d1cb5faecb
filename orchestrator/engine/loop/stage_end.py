"""The end of a pipeline's stage: what it means for the pipeline, and what a person can do after a failure."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord
from orchestrator.store.store import Store


def find_stage_job(store: Store | Reader, record: PipelineRecord) -> JobRecord | None:
    """Return the newest job of the current stage, on whatever cluster, deleted or not; None before it has one."""
    jobs = [job for job in store.pipeline_jobs(record.uid) if job.stage == record.stage]
    return jobs[-1] if jobs else None


def record_stage_end(store: Store, record: PipelineRecord, job: JobRecord, lease: Lease | None = None) -> None:
    """Record that the job of the current stage has ended: the next stage begins, or the pipeline ends.

    Args:
        store: Open.
        record: The pipeline, as it runs.
        job: The job, which has ended.
        lease: Of the process that drives the pipeline; None for one that only ended the job.
    """
    stages = len(record.tasks)
    if job.status != Exit.OK:
        what = f"{record.describe_stage()}: {job.what}"
        store.end_pipeline(record.uid, "ended", job.status or Exit.FAILURE, what, lease=lease)
    elif record.stage + 1 == stages:
        store.end_pipeline(record.uid, "ended", Exit.OK, f"all {stages} stages succeeded", lease=lease)
    else:
        store.advance_pipeline(record.uid, record.stage + 1, lease=lease)


def end_stopped_pipelines(store: Store, cluster: ClusterRecord) -> None:
    """Record the end of pipelines whose current stage a person ended with the cluster or its job.

    The process that drives a pipeline does the same, but it may have been killed.
    """
    for job in store.jobs(cluster):
        if not job.pipeline or job.state != "ended" or job.status == Exit.OK:
            continue
        record = store.pipeline(job.pipeline)
        newest = find_stage_job(store, record)
        if record.may_continue and newest is not None and (newest.cluster_uid, newest.id) == (cluster.uid, job.id):
            record_stage_end(store, record, job)


def make_stage_step(record: PipelineRecord, job: JobRecord | None) -> NextStep:
    """Return what a person can do after a failure: see the output of the stage that failed, and resume there."""
    stage = record.describe_stage()
    again = f"the same launch resumes at {stage}; at another one: --from STAGE"
    if job is None or not job.started:
        return NextStep(words=again)
    if job.next_step.words and not job.next_step.command:  # it may change the task, and so the pipeline
        again = f"{job.next_step.words}; from this stage on: --from {record.name_stage(job.stage) or job.stage + 1}"
    return NextStep(f"orch logs {record.cluster} {job.id}", f"shows the output of {stage}\n{again}")
