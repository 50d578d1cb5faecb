"""Find a cluster by its name, with a suggestion when there is none, and the job of it that matters now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import NotFoundError, OrchError, TakenOverError, UserError

if TYPE_CHECKING:  # the help of a command needs none of these
    from orchestrator.hosts import HostAddress
    from orchestrator.plan.observed import Intent
    from orchestrator.store.admission_records import SliceOwner
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord

SUGGESTED = 1000  # newest runs, of whose names the nearest to an unknown one is suggested
RUNNING = ("running", "cancelling")  # states of a job whose program may run


class HasClusters(Protocol):
    """A store, or a reader of it."""

    @property
    def project(self) -> str:
        """The project in which names are looked up."""
        ...

    def cluster(self, name: str) -> ClusterRecord | None:
        """Return the existing cluster of this name, or None."""
        ...

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return all existing clusters, of all projects."""
        ...

    def deleted_cluster(self, name: str) -> ClusterRecord | None:
        """Return the newest deleted cluster of this name, or None."""
        ...

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        """Return the intents of a cluster."""
        ...

    def slice_owner(self, token: str) -> SliceOwner | None:
        """Return who has a slice that changed hands."""
        ...


def find_cluster(store: HasClusters, name: str) -> ClusterRecord:
    """Return the existing cluster of this name.

    Raises:
        NotFoundError: There is none; the nearest names are suggested.
    """
    record = store.cluster(name)
    if record is None:
        raise cluster_not_found(store, name)
    return record


def find_pipeline(store: Reader, name: str, job: int | None = None) -> PipelineRecord | None:
    """Return the unended pipeline that a person means by a name: its own, or the cluster of its current stage.

    A cluster that exists hides a pipeline of the same name, unless the current stage runs on it. Of several pipelines
    the newest is meant, and one's own before those of other members.

    Args:
        store: Open.
        name: The name.
        job: The job of the cluster that is meant, which has to be the pipeline's; None for no certain one.
    """
    cluster = store.cluster(name)
    jobs = store.jobs(cluster) if cluster is not None and job is not None else ()
    meant = next((one.pipeline for one in jobs if one.id == job), "")
    unended = store.pipelines(ended=False)
    for pipeline in sorted(unended, key=lambda one: (one.owner not in ("", store.member), -one.created)):
        named = name == pipeline.cluster or (cluster is None and name == pipeline.name)
        if pipeline.project == store.project and named and (job is None or meant == pipeline.uid):
            return pipeline
    return None


def cluster_not_found(store: HasClusters, name: str) -> OrchError:
    """Return the error for a cluster that does not exist: that it was deleted or taken over, or the nearest names."""
    if (record := store.deleted_cluster(name)) is not None:
        if holder := find_new_owner(store, record):
            return taken_over_error(name, holder)
        runs, logs = f"orch runs -c {name}   shows its runs", f"orch logs {name}   what was downloaded of its output"
        return NotFoundError(describe_deletion(record), "", f"{runs}\n{logs}")
    records = store.clusters()
    near = suggest_name(name, _names(record for record in records if record.project == store.project))
    elsewhere = sorted({record.project for record in records if record.name == name})
    if elsewhere:
        why = f"project '{store.project}' has none; project {', '.join(elsewhere)} has one"
        return NotFoundError(f"there is no cluster '{name}' here", why, f"the same with: ORCH_PROJECT={elsewhere[0]}")
    return NotFoundError(f"there is no cluster '{name}'", near, "orch status   (lists the clusters that exist)")


def find_new_owner(store: HasClusters, record: ClusterRecord) -> str:
    """Return who has taken over the machines of a closed record, in words; "" for no one."""
    owners = (store.slice_owner(intent.token) for intent in store.intents(record))
    return next((owner.holder for owner in owners if owner is not None and owner.holder), "")


def taken_over_error(cluster: str, holder: str) -> TakenOverError:
    """Return the error for machines of a cluster that another installation has taken over."""
    return TakenOverError(
        f"the machines of '{cluster}' were taken over {holder}",
        "they are not touched from here any more; the record here is closed",
        f"to take them back: orch recover {cluster} --take-over",
    )


def describe_deletion(record: ClusterRecord) -> str:
    """Return that a cluster was deleted, and when."""
    from orchestrator.plan.limits import format_time

    when = f", {format_time(record.deleted, time.time())}" if record.deleted is not None else ""
    return f"cluster '{record.name}' was deleted{when}"


def find_current_job(jobs: Iterable[JobRecord]) -> JobRecord | None:
    """Return the job that matters now: a running launch or resume, else the newest one, else a command (exec).

    A launch without a program, which only set the hosts up, is no more than a command.
    """
    return max(jobs, key=lambda job: (_has_program(job), job.state in RUNNING, job.id), default=None)


def _has_program(job: JobRecord) -> bool:
    return job.kind != "exec" and (job.started or job.state != "ended" or job.status != 0)


def suggest_run(store: Reader, name: str, *, project: str = "", owner: str = "") -> str:
    """Return a question with the nearest names of clusters and runs on record, also deleted ones; "" for none."""
    runs = store.newest_runs(limit=SUGGESTED, project=project, owner=owner)
    return suggest_name(name, {*store.cluster_names(project, owner), *runs})


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest of the known names; "" when none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def _names(records: Iterable[ClusterRecord]) -> list[str]:
    return [record.name for record in records]


def select_hosts(record: ClusterRecord, ranks: tuple[int, ...] | None = None) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster by their last known addresses: all of them, or those of `ranks`."""
    if not record.hosts:
        raise NotFoundError(
            f"cluster '{record.name}' has no hosts now",
            f"its last known state is {record.last_state}" if record.last_state else "",
            f"orch status {record.name}",
        )
    if ranks is None:
        return record.hosts
    by_rank = {host.rank: host for host in record.hosts}
    missing = [rank for rank in ranks if rank not in by_rank]
    if missing:
        raise UserError(
            f"cluster '{record.name}' has no host {missing[0]}",
            f"its hosts are 0 to {max(by_rank)}",
            f"orch status {record.name}",
        )
    return tuple(by_rank[rank] for rank in ranks)
