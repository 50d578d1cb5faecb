"""The end of a pipeline by a person: its stage is cancelled, its own clusters are deleted, and its record ends.

The request is recorded first, so that no stage starts any more; the record ends last. Killed in between, the same
command, or whatever drives the pipeline, finishes it.
"""

from __future__ import annotations

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.loop.stage_end import find_stage_job
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.plan.steps import Done
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord
from orchestrator.store.store import Store

_ENDED = {"cancel": "cancelled", "down": "taken down"}


def stop_pipeline(
    store: Store,
    services: Services,
    record: PipelineRecord,
    narrator: Narrator,
    verb: str,
    *,
    force: bool = False,
    abandon: bool = False,
) -> CommandResult:
    """End a pipeline, whether a process drives it or not.

    Args:
        store: Open, in the project of the pipeline.
        services: The external services.
        record: The pipeline.
        narrator: Receives the progress.
        verb: "cancel" ends its stage and the clusters of its stages; "down" deletes a shared cluster, too.
        force: Also clusters of another member.
        abandon: As of `orch down`.

    Returns:
        How it ended; the result of the command of a cluster that failed.
    """
    store.request_pipeline_end(record.uid, verb)
    record = store.pipeline(record.uid)
    before = list_stage_clusters(store, record)
    ending = _end_stage(store, services, record, narrator, force=force, abandon=abandon)
    if ending is not None:
        return ending
    with LeaseKeeper(store, record.uid, "pipeline", narrator, kind="pipeline") as keeper:
        try:
            keeper.hold()
        except ConflictError as error:  # what drives it reads the request, and finishes it
            return CommandResult(step=Done(f"{_describe_end(record)}; {error.what}, and ends what is left of it"))
        ending = finish_stop(store, services, store.pipeline(record.uid), narrator, force=force, abandon=abandon)
    return ending or CommandResult(step=Done(f"{_describe_end(record)}; {_describe_hosts(store, record, before)}"))


def finish_stop(
    store: Store,
    services: Services,
    record: PipelineRecord,
    narrator: Narrator,
    *,
    force: bool = False,
    abandon: bool = False,
) -> CommandResult | None:
    """Carry out the recorded request to end a pipeline, whose lease is held; return the result of what failed."""
    if record.state != "running":
        return None
    ending = _end_stage(store, services, record, narrator, force=force, abandon=abandon)
    if ending is not None:
        return ending
    for cluster in list_stage_clusters(store, record):
        if record.requested_end == "down" or _is_free(store, record, cluster):
            ready = commands.prepare_down(cluster.name, abandon=abandon, force=force, project=record.project)
            ending = drive_cluster(ready, narrator, services=services)
            if ending.status:
                return ending
    what = f"{record.describe_stage()} was {_ENDED[record.requested_end]}"
    store.end_pipeline(record.uid, "cancelled", Exit.INTERRUPTED, what)
    return None


def delete_stage_cluster(
    store: Store, services: Services, record: PipelineRecord, job: JobRecord, narrator: Narrator
) -> CommandResult | None:
    """Delete the own cluster of a stage whose job has ended, if the launch was killed before it did.

    Returns:
        The result where it failed, or None.
    """
    cluster = store.cluster(record.cluster)
    if cluster is None or cluster.uid != job.cluster_uid or job.after_end != "down" or _has_other_work(store, cluster):
        return None
    if any(one.id > job.id and one.kind != "exec" for one in store.jobs(cluster)):
        return None  # it was launched on again since
    ready = commands.prepare_down(cluster.name, force=True, project=record.project)
    ending = drive_cluster(ready, narrator, services=services)
    return ending if ending.status else None


def list_stage_clusters(store: Store | Reader, record: PipelineRecord) -> list[ClusterRecord]:
    """Return the existing clusters on which stages of a pipeline ran, or that a killed launch made for one."""
    names = dict.fromkeys(record.cluster_of(stage) for stage in range(record.stage + 1))
    found = [cluster for name in names if (cluster := store.cluster(name)) is not None]
    return [one for one in found if record.shared_cluster or _is_of(store, record, one)]


def prepare_stop(
    store: Store | Reader, record: PipelineRecord, verb: str, *, force: bool
) -> tuple[PreparedCommand, ...]:
    """Prepare what ends a pipeline, for a preview: the end of its program on a shared cluster, or of its clusters."""
    clusters = list_stage_clusters(store, record)
    if verb == "down" or not record.shared_cluster:
        return tuple(commands.prepare_down(one.name, force=force, project=record.project) for one in clusters)
    job = find_stage_job(store, record)
    if not clusters or job is None or job.state == "ended":
        return ()
    return (commands.prepare_cancel(clusters[0].name, job.id, force=force, project=record.project),)


def _end_stage(
    store: Store, services: Services, record: PipelineRecord, narrator: Narrator, *, force: bool, abandon: bool
) -> CommandResult | None:
    """End the program of the current stage, which may save before; return the result where that failed.

    A teardown ends it with the machines.
    """
    job, cluster = find_stage_job(store, record), store.cluster(record.cluster)
    if cluster is None or job is None or job.state == "ended" or cluster.uid != job.cluster_uid:
        return None
    if record.requested_end == "down":
        ready = commands.prepare_down(cluster.name, abandon=abandon, force=force, project=record.project)
    else:
        ready = commands.prepare_cancel(cluster.name, job.id, force=force, project=record.project)
    ending = drive_cluster(ready, narrator, services=services)
    return ending if ending.status else None


def _is_of(store: Store | Reader, record: PipelineRecord, cluster: ClusterRecord) -> bool:
    """Return whether a cluster is that of a stage, and nothing was launched on it since."""
    jobs = [job for job in store.jobs(cluster) if job.kind != "exec"]
    return not jobs or jobs[-1].pipeline == record.uid


def _is_free(store: Store, record: PipelineRecord, cluster: ClusterRecord) -> bool:
    """Return whether a cancel deletes a cluster: that of one stage, which no other work uses."""
    return not record.shared_cluster and not _has_other_work(store, cluster)


def _has_other_work(store: Store, cluster: ClusterRecord) -> bool:
    return any(job.state != "ended" for job in store.jobs(cluster))


def _describe_end(record: PipelineRecord) -> str:
    return f"pipeline '{record.name}' is {_ENDED[record.requested_end]} at {record.describe_stage()}"


def _describe_hosts(store: Store, record: PipelineRecord, before: list[ClusterRecord]) -> str:
    """Return what happened to the hosts of clusters that existed before."""
    left = {one.uid for one in before if (now := store.cluster(one.name)) is not None and now.uid == one.uid}
    lines = [
        f"the hosts of '{one.name}' stay, until: orch down {one.name}"
        if one.uid in left
        else f"'{one.name}' is deleted"
        for one in before
    ]
    return "; ".join(lines) or "it has no hosts"
