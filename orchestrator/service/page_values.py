"""The pages for people: each handler reads what one page shows, and names its template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.documents.clusters import ClusterSummary, summarize_cluster
from orchestrator.documents.curves import reduce_points
from orchestrator.documents.queue import list_queue
from orchestrator.documents.run_view import RunView
from orchestrator.documents.stages import read_pipelines
from orchestrator.documents.topology import describe_topology
from orchestrator.hosts import ChipReport, ChipSample
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.project import qualify_name
from orchestrator.service.drawing.chip_marks import MEASURES, Measure, mark_chips
from orchestrator.service.drawing.chips import ChipDrawing, HostHealth, HostState, draw_chips
from orchestrator.service.drawing.run_charts import Axis, draw_curves
from orchestrator.service.host_board import HostReport
from orchestrator.service.records import read_run_of, select_clusters, select_runs
from orchestrator.service.route import Answer, Call
from orchestrator.slices import SliceState
from orchestrator.store.lookup import find_cluster

_RECENT = 30  # events on a page


def show_runs(call: Call) -> Answer:
    """Show the newest runs."""
    with call.open_reader() as store:
        found, older = select_runs(store, call)
    return Answer(template="runs.html", values={"runs": found}, following=older)


def show_run(call: Call) -> Answer:
    """Show one run: loss beside cost beside topology beside events."""
    view = read_run_of(call)
    axis: Axis = call.query["x"]
    if axis == "dollars" and not view.spending.known:
        axis = "time"
    loss, cost = draw_curves(view, axis)
    with call.open_reader() as store:
        recent = store.events(view.run.cluster.qualified_name, limit=_RECENT)
        summary = summarize_cluster(store, view.run.cluster)
    reports: Mapping[int, HostReport] = call.site.hosts.read(summary.cluster.uid) if view.at_work else {}
    values: dict[str, Any] = _show_topology(call, view.slice, summary, view, reports) | {
        "view": view, "run": view.run, "last": view.points[-1] if view.points else None, "axis": axis, "loss": loss,
        "cost": cost, "events": recent[::-1], "now": call.site.now(), "cluster": summary,
        "rows": reduce_points(view.points, 24), "query": f"x={axis}&",
    }  # fmt: skip
    return Answer(template="run.html", values=values)


def show_clusters(call: Call) -> Answer:
    """Show the open clusters."""
    with call.open_reader() as store:
        chosen = select_clusters(store, call)
        summaries = [summarize_cluster(store, record) for record in chosen.records]
    values = {"clusters": summaries, "paid": chosen.paid, "now": call.site.now()}
    return Answer(template="clusters.html", values=values, following=chosen.following)


def show_cluster(call: Call) -> Answer:
    """Show one cluster with the topology of its machines."""
    with call.open_reader() as store:
        summary = summarize_cluster(store, find_cluster(store, call.path["name"]))
        recent = store.events(summary.cluster.qualified_name, limit=_RECENT)
        pipelines = read_pipelines(store, summary.jobs)
    reports = call.site.hosts.read(summary.cluster.uid)
    values = _show_topology(call, summary.current, summary, None, reports) | {
        "item": summary,
        "pipelines": pipelines,
        "events": recent[::-1],
        "now": call.site.now(),
        "query": "",
    }
    return Answer(template="cluster.html", values=values)


def show_queue(call: Call) -> Answer:
    """Show what runs, what waits, and what drives it."""
    with call.open_reader() as store:
        return Answer(template="queue.html", values={"queue": list_queue(store), "now": call.site.now()})


def show_events(call: Call) -> Answer:
    """Show the newest events."""
    cluster, limit = call.query["cluster"], call.query["limit"]
    with call.open_reader() as store:
        name = qualify_name(store.project, cluster) if cluster else None
        found = store.events(name, limit=limit)
    return Answer(template="events.html", values={"events": found[::-1], "cluster": cluster})


def _show_topology(
    call: Call, intent: Intent | None, summary: ClusterSummary, view: RunView | None, reports: Mapping[int, HostReport]
) -> dict[str, Any]:
    """Return what the drawing of a slice and its table need; no drawing without a slice."""
    measure: Measure = call.query["chips"]
    sampled = {
        rank: report.chips for rank, report in reports.items() if report.chips is not None and report.chips.chips
    }
    topology = describe_topology(intent.candidate) if intent is not None else None
    drawing: ChipDrawing | None = None
    if intent is not None and topology is not None:
        marks = mark_chips(measure, topology, sampled)
        drawing = draw_chips(topology, find_health(intent, summary, view, reports), marks, measure)
    return {
        "topology": topology, "chips": drawing, "reports": reports, "measure": measure,
        "measures": MEASURES if sampled or (topology is not None and topology.chips) else (),
        "chip_rows": _list_chip_rows(sampled) if measure != "steps" else [],
        "sample_age": max((report.age for report in sampled.values()), default=None),
    }  # fmt: skip


def _list_chip_rows(sampled: Mapping[int, ChipReport]) -> list[tuple[int, ChipSample]]:
    return [(rank, chip) for rank in sorted(sampled) for chip in sampled[rank].chips]


def find_health(
    intent: Intent, summary: ClusterSummary, view: RunView | None, reports: Mapping[int, HostReport]
) -> dict[int, HostState]:
    """Return what is known of each host of a slice: what is on record, and what the engine observes at present."""
    ranks = range(intent.candidate.hosts)
    if intent.state in FINAL_STATES:
        health = dict.fromkeys(ranks, HostState.of(HostHealth.ENDED))
    elif summary.state == SliceState.READY:
        health = dict.fromkeys(ranks, HostState.of(HostHealth.READY)) | {
            rank: report.judge() for rank, report in reports.items() if rank in ranks
        }
    else:
        health = dict.fromkeys(ranks, HostState.of(HostHealth.UNKNOWN))
    for ended in view.attempts if view is not None else ():
        if ended.generation == intent.generation and ended.rank is not None and ended.rank not in reports:
            health[ended.rank] = HostState.of(HostHealth.LOST)
    return health
