"""The routes under /v1: the documents of the command line's `-o json`, over HTTP."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import NotFoundError
from orchestrator.project import qualify_name
from orchestrator.remote.chips import chip_as_json
from orchestrator.service.route import Answer, Call
from orchestrator.store.lookup import find_cluster, suggest_name
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.summaries.clusters import clusters_as_json, summarize_cluster
from orchestrator.summaries.events import events_as_json
from orchestrator.summaries.output_progress import add_cluster_output, add_output
from orchestrator.summaries.queue import list_queue, queue_as_json
from orchestrator.summaries.run_view import RunView, curves_as_json, read_run, run_as_json
from orchestrator.summaries.runs import runs_as_json, summarize_runs


def show_member(call: Call) -> Answer:
    """Answer with who asks, and what they may do."""
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    who = {"member": person.name, "role": person.role.name.lower(), "project": call.project}
    limit = {"only_project": call.only_project or None}
    return Answer(document={"version": 1, "kind": "member", **who, **limit})


def list_runs(call: Call) -> Answer:
    """Answer with the newest runs; the next page begins before the last of them."""
    limit = call.query["limit"]
    with call.open_reader() as store:
        project, owner = call.read_filter(store)
        ids = store.newest_runs(limit=limit + 1, before=call.query["before"], project=project, owner=owner)
        found = add_output(store, summarize_runs(store, call.site.now(), ids[:limit]))
    more = {"before": repr(found[-1].last.created)} if len(ids) > limit else None
    return Answer(document=runs_as_json(found), following=more)


def show_run(call: Call) -> Answer:
    """Answer with one run."""
    return Answer(document=run_as_json(read_run_of(call)))


def show_curves(call: Call) -> Answer:
    """Answer with the curves of a run."""
    return Answer(document=curves_as_json(read_run_of(call), call.query["points"]))


def read_run_of(call: Call) -> RunView:
    """Return the run that the path names."""
    with call.open_reader() as store:
        view = read_run(store, call.path["run_id"], call.site.now(), call.site.open_bucket, call.site.curves)
        return replace(view, run=add_output(store, [view.run])[0])


def list_clusters(call: Call) -> Answer:
    """Answer with the open clusters."""
    with call.open_reader() as store:
        records = select_clusters(store, call)
        actors = store.last_actors("cluster", [record.qualified_name for record in records])
        found = add_cluster_output(store, [summarize_cluster(store, record) for record in records])
        return Answer(document=clusters_as_json(found, actors))


def show_cluster(call: Call) -> Answer:
    """Answer with one cluster."""
    with call.open_reader() as store:
        record = find_cluster(store, call.path["name"])
        actors = store.last_actors("cluster", [record.qualified_name])
        found = add_cluster_output(store, [summarize_cluster(store, record)])
        return Answer(document=clusters_as_json(found, actors))


def show_chips(call: Call) -> Answer:
    """Answer with what the engine of this process observes of a cluster's hosts and chips."""
    with call.open_reader() as store:
        cluster = find_cluster(store, call.path["name"])
    reports = call.site.hosts.read(cluster.uid)
    hosts = [
        {
            "rank": report.rank,
            "contact": str(report.contact),
            "step": report.step,
            "steps_behind": report.behind,
            "beat_age": report.beat_age,
            "sample_age": report.chips.age if report.chips is not None else None,
            "chips": [chip_as_json(chip) for chip in report.chips.chips] if report.chips is not None else [],
        }
        for report in reports.values()
    ]
    return Answer(document={"version": 1, "kind": "chips", "cluster": cluster.name, "hosts": hosts})


def select_clusters(store: Reader, call: Call) -> list[ClusterRecord]:
    """Return the open clusters that the query chooses."""
    project, owner = call.read_filter(store)
    return [one for one in store.clusters() if project in ("", one.project) and owner in ("", one.owner)]


def show_queue(call: Call) -> Answer:
    """Answer with the jobs and pipelines that are not finished."""
    with call.open_reader() as store:
        queue = list_queue(store)
        names = {one.cluster.qualified_name for one in queue.jobs} | {"" for _ in queue.pipelines}
        return Answer(document=queue_as_json(queue, store.last_actors("subject", names)))


def list_events(call: Call) -> Answer:
    """Answer with the oldest events after a number."""
    limit, cluster = call.query["limit"], call.query["cluster"]
    with call.open_reader() as store:
        if cluster and not store.count_clusters(cluster):
            known = {record.name for record in store.all_clusters()}
            raise NotFoundError(f"no cluster '{cluster}' on record", suggest_name(cluster, known), "orch status")
        name = qualify_name(store.project, cluster) if cluster else None
        found = store.events_after(call.query["after"], limit, name)
    more = {"after": str(found[-1].seq)} if len(found) == limit else None
    return Answer(document=events_as_json(found), following=more)
