"""Prepare a run again: from the record of this installation, or from that of its bucket, with consent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.engine.preparation.bucket_record import BucketRecord, read_bucket_record
from orchestrator.engine.preparation.checkpoint_review import (
    ConsentToCheckpoints,
    refuse_unsigned,
    review_checkpoints,
)
from orchestrator.engine.preparation.cluster_name import choose_cluster_name
from orchestrator.engine.preparation.commands import add_secrets_from_environment
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.record_review import ConsentToRecord, refuse_unknown_record, review_record
from orchestrator.engine.preparation.runs import prepare_run
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import ConflictError, NotFoundError, UserError
from orchestrator.plan.desired import Run
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.lookup import suggest_run
from orchestrator.store.read import Reader
from orchestrator.store.records import JobRecord
from orchestrator.task.model import Task


def prepare_resume(
    name_or_run_id: str,
    *,
    cluster: str | None = None,
    bucket: str | None = None,
    after: TeardownPolicy | None = None,
    force: bool = False,
    take_over: bool = False,
    consent: ConsentToRecord = refuse_unknown_record,
    consent_to_load: ConsentToCheckpoints = refuse_unsigned,
    project: str = "",
) -> PreparedCommand:
    """Prepare the same run again from its newest complete checkpoint, on the same cluster name or another.

    Args:
        name_or_run_id: The cluster whose last run it is, or the run.
        cluster: The cluster to run on, or None for the run's.
        bucket: Where the run is found that is not on record here. Its record there is compared with the one here.
        after: What happens to the machines when the job ends; None for what the run's last job requested.
        force: Whether to resume even a run that has succeeded.
        take_over: Whether to claim the run from another driver that is at work.
        consent: Asks about a record from the bucket; called before anything that the record names is used.
        consent_to_load: Asks about checkpoints of an own program that lack the signature of the run.
        project: In which the cluster or run is found; "" for that of the environment.
    """
    with open_reader(project) as reader:
        where, job = _find_run(reader, name_or_run_id)
    if job is not None:
        _refuse_finished(job, name_or_run_id, force)
    record = _read_record(name_or_run_id, bucket, job, project)
    known = Task.from_json(job.task) if job is not None else None
    if record is not None:
        consent(review_record(record, known))
    if job is not None and known is not None and (record is None or record.task == known):
        task, run_id, attempt, text = known, job.run_id, job.attempt, job.task
    else:
        assert record is not None  # noqa: S101  # _read_record refuses a run that is neither here nor in a bucket
        task, run_id, attempt, text = record.task, record.run_id, record.attempt, record.text
        attempt = max(attempt, job.attempt) if job is not None else attempt
        where = where or choose_cluster_name(task, None)
    if not task.checkpoint.bucket:
        raise UserError(
            f"run {run_id} has no bucket, so there is nothing to resume from",
            "checkpoints are kept only when the task names a bucket",
            _next_without_bucket(where, job),
        )
    trusted, agreed, notes = _review_checkpoints(task, text, run_id, project, consent_to_load)
    task = add_secrets_from_environment(task)
    name = cluster or where
    usual = TeardownPolicy(job.after_end) if job is not None else TeardownPolicy.KEEP
    ready = prepare_run(
        task,
        name,
        "resume",
        after or usual,
        run_id=run_id,
        first_attempt=attempt + 1,
        resume_from="latest",
        record=text,
        project=project,
    )
    desired = replace(ready.desired, trusted=(*trusted, *agreed)) if isinstance(ready.desired, Run) else ready.desired
    return replace(ready, desired=desired, take_over=take_over, trusted=trusted, notes=(*ready.notes, *notes))


def _review_checkpoints(
    task: Task, record: str, run_id: str, project: str, consent: ConsentToCheckpoints
) -> tuple[Mapping[str, int], tuple[str, ...], tuple[str, ...]]:
    """Return the checkpoints without a signature to which someone agrees now, those of before, and notes for the plan.

    Raises:
        UntrustedCheckpointError: No one agrees.
    """
    if task.train is not None:  # the bundled trainer's checkpoints hold numbers and JSON alone
        return {}, (), ()
    review, note = review_checkpoints(task, record, run_id, project)
    if review.unsigned:
        consent(review)
    return review.steps, review.agreed, (note,) if note else ()


def _next_without_bucket(cluster: str, job: JobRecord | None) -> str:
    if job is None or job.state == "ended":
        return "launch it again with --bucket URI"
    return (
        f"orch watch {cluster} {job.id}   continues job {job.id}, which has not ended\n"
        f"orch down {cluster}   ends it and its machines"
    )


def _find_run(reader: Reader, name_or_run_id: str) -> tuple[str, JobRecord | None]:
    job = reader.last_run_of(name_or_run_id)
    if job is not None:
        return name_or_run_id, job
    found = reader.find_run(name_or_run_id)
    return found if found is not None else ("", None)


def _read_record(name_or_run_id: str, bucket: str | None, job: JobRecord | None, project: str) -> BucketRecord | None:
    """Return the run's record in the bucket; None without a bucket, or without a record there of a run that is known.

    Raises:
        NotFoundError: The run is neither on record here nor in a bucket.
    """
    if bucket is None:
        if job is not None:
            return None
        with open_reader(project) as reader:
            near = suggest_run(reader, name_or_run_id)
        raise NotFoundError(
            f"no cluster and no run called '{name_or_run_id}' is on record here",
            near or "a run from another computer is found through its bucket",
            f"orch resume {name_or_run_id} --bucket URI",
        )
    try:
        return read_bucket_record(bucket, job.run_id if job is not None else name_or_run_id)
    except NotFoundError:
        if job is None:
            raise
        return None


def _refuse_finished(job: JobRecord, requested: str, force: bool) -> None:
    if job.state == "ended" and job.status == 0 and not force:
        raise ConflictError(
            f"run {job.run_id} succeeded; there is nothing to resume",
            "its program returned 0",
            f"to run it again from its last checkpoint: orch resume {requested} --force",
        )
