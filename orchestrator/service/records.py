"""The routes under /v1: the documents of the command line's `-o json`, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.documents.capacity import read_capacity
from orchestrator.documents.cluster_rows import list_cluster_rows
from orchestrator.documents.clusters import PaidPerHour, sum_prices_of
from orchestrator.documents.events import events_as_json, read_events
from orchestrator.documents.measured_run import measure_run, measured_as_json
from orchestrator.documents.output_progress import add_output
from orchestrator.documents.queries import ClustersQuery, EventsQuery, QueueQuery, RunsQuery, choose_clusters
from orchestrator.documents.queue import read_queue
from orchestrator.documents.run_view import RunView, curves_as_json, read_run, run_as_json
from orchestrator.documents.runs import RunSummary, find_runs, runs_as_json
from orchestrator.documents.status import clusters_as_json, read_status
from orchestrator.errors import NotFoundError
from orchestrator.project import qualify_name, split_name
from orchestrator.remote.chips import chip_as_json
from orchestrator.service.route import Answer, Call
from orchestrator.store.lookup import find_cluster, suggest_name
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord


def show_member(call: Call) -> Answer:
    """Answer with who asks, and what they may do."""
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    who = {"member": person.name, "role": person.role.name.lower(), "project": call.project}
    limit = {"only_project": call.only_project or None}
    return Answer(document={"version": 1, "kind": "member", **who, **limit})


def list_runs(call: Call) -> Answer:
    """Answer with the newest runs; the next page begins before the last of them."""
    with call.open_reader() as store:
        found, following = select_runs(store, call)
        shown = add_output(found)
    return Answer(document=runs_as_json(shown, call.site.now()), following=following)


def select_runs(store: Reader, call: Call) -> tuple[list[RunSummary], Mapping[str, str] | None]:
    """Return a page of the newest runs that the query chooses, and the query of the next page."""
    limit: int = call.query["limit"]
    query = RunsQuery(
        scope=call.read_scope(store), cluster=call.query.get("cluster", ""), run_id=call.query.get("run", ""),
        limit=limit + 1, before=call.query["before"],
    )  # fmt: skip
    found = find_runs(store, call.site.now(), query)
    more = {"before": repr(found[limit - 1].last.created)} if len(found) > limit else None
    return found[:limit], more


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
        return replace(view, run=add_output([view.run])[0])


def show_measured(call: Call) -> Answer:
    """Answer with what a run reached on its machines."""
    now = call.site.now()
    with call.open_reader() as store:
        found = measure_run(store, call.path["run_id"], now, call.site.open_bucket, call.site.curves)
    return Answer(document=measured_as_json(found, now))


def list_clusters(call: Call) -> Answer:
    """Answer with open clusters by name; the next page begins after the last of them."""
    with call.open_reader() as store:
        chosen = select_clusters(store, call)
        document = clusters_as_json(store, call.site.now(), chosen.records, chosen.paid)
    return Answer(document=document, following=chosen.following)


def show_cluster(call: Call) -> Answer:
    """Answer with one cluster."""
    with call.open_reader() as store:
        return Answer(document=read_status(store, call.site.now(), ClustersQuery(cluster=call.path["name"])))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPage:
    """Some of the open clusters that a query chooses.

    Attributes:
        records: By name and project.
        paid: What all chosen ones cost an hour, also those of other pages.
        following: The query of the next page; None for the last.
    """

    records: Sequence[ClusterRecord]
    paid: PaidPerHour
    following: Mapping[str, str] | None


def select_clusters(store: Reader, call: Call) -> ClusterPage:
    """Return a page of the open clusters that the query chooses."""
    limit: int = call.query["limit"]
    chosen = choose_clusters(store, call.read_scope(store), "")
    chosen.sort(key=lambda one: (one.name, one.project))
    after_project, after_name = split_name(call.query["after"])
    left = [one for one in chosen if (one.name, one.project) > (after_name, after_project)] if after_name else chosen
    more = {"after": left[limit - 1].qualified_name} if len(left) > limit else None
    return ClusterPage(records=left[:limit], paid=sum_prices_of(store, chosen), following=more)


def show_queue(call: Call) -> Answer:
    """Answer with jobs and pipelines in their order."""
    with call.open_reader() as store:
        ended = call.query["ended"] == "yes"
        query = QueueQuery(scope=call.read_scope(store), cluster=call.query["cluster"], ended=ended)
        return Answer(document=read_queue(store, call.site.now(), query))


def list_newest_events(call: Call) -> Answer:
    """Answer with the newest events, oldest first, as `orch events` shows them."""
    with call.open_reader() as store:
        query = EventsQuery(
            scope=call.read_scope(store), cluster=call.query["cluster"], after=call.query["after"],
            before=call.query["before"], limit=call.query["limit"],
        )  # fmt: skip
        return Answer(document=read_events(store, call.site.now(), query))


def show_capacity(call: Call) -> Answer:
    """Answer with what own requests for machines say of capacity."""
    with call.open_reader() as store:
        return Answer(document=read_capacity(store, call.site.now()))


def list_records(call: Call) -> Answer:
    """Answer with the rows of clusters that a command on their hosts needs."""
    with call.open_reader() as store:
        return Answer(document=list_cluster_rows(store, call.site.now(), call.query["cluster"]))


def list_events(call: Call) -> Answer:
    """Answer with the oldest events after a number."""
    limit, cluster = call.query["limit"], call.query["cluster"]
    with call.open_reader() as store:
        if cluster and not store.count_clusters(cluster):
            known = store.cluster_names()
            raise NotFoundError(f"no cluster '{cluster}' on record", suggest_name(cluster, known), "orch status")
        name = qualify_name(store.project, cluster) if cluster else None
        found = store.events_after(call.query["after"], limit, name)
    more = {"after": str(found[-1].seq)} if len(found) == limit else None
    return Answer(document=events_as_json(found, call.site.now()), following=more)
