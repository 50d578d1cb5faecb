"""The pages for people: each handler reads what one page shows, and names its template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from orchestrator.formatting import format_duration
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.project import qualify_name
from orchestrator.service.drawing.chart import Chart, Mark, Pair, Series, draw_chart, find_borders
from orchestrator.service.drawing.chips import ChipDrawing, HostHealth, draw_chips
from orchestrator.service.records import read_run_of, select_clusters
from orchestrator.service.route import Answer, Call
from orchestrator.slices import SliceState
from orchestrator.store.lookup import find_cluster
from orchestrator.summaries.clusters import ClusterSummary, summarize_cluster
from orchestrator.summaries.curves import Point, reduce_points
from orchestrator.summaries.queue import list_queue
from orchestrator.summaries.run_view import RunView
from orchestrator.summaries.runs import summarize_runs
from orchestrator.summaries.topology import Topology, describe_topology

_MOST_POINTS = 600  # of one chart, which is 640 units wide
_RECENT = 30  # events on a page
Axis = Literal["step", "time", "dollars"]


def show_runs(call: Call) -> Answer:
    """Show the newest runs."""
    limit = call.query["limit"]
    with call.site.open_reader() as store:
        ids = store.newest_runs(
            limit=limit + 1, before=call.query["before"], project=call.query["project"], owner=call.query["owner"]
        )
        found = summarize_runs(store, call.site.now(), ids[:limit])
    older = {"before": repr(found[-1].last.created)} if len(ids) > limit else None
    return Answer(template="runs.html", values={"runs": found}, following=older)


def show_run(call: Call) -> Answer:
    """Show one run: loss beside cost beside topology beside events."""
    view = read_run_of(call)
    axis: Axis = call.query["x"]
    if axis == "dollars" and not view.spending.known:
        axis = "time"
    loss, cost = draw_curves(view, axis)
    with call.site.open_reader() as store:
        recent = store.events(view.run.cluster.qualified_name, limit=_RECENT)
        summary = summarize_cluster(store, view.run.cluster)
    topology, drawing = draw_topology(view.slice, summary, view)
    values = {
        "view": view, "run": view.run, "last": view.points[-1] if view.points else None, "axis": axis, "loss": loss,
        "cost": cost, "events": recent[::-1], "topology": topology, "chips": drawing, "now": call.site.now(),
        "cluster": summary, "rows": reduce_points(view.points, 24),
    }  # fmt: skip
    return Answer(template="run.html", values=values)


def show_clusters(call: Call) -> Answer:
    """Show the open clusters."""
    with call.site.open_reader() as store:
        summaries = [summarize_cluster(store, record) for record in select_clusters(store, call)]
    return Answer(template="clusters.html", values={"clusters": summaries, "now": call.site.now()})


def show_cluster(call: Call) -> Answer:
    """Show one cluster with the topology of its machines."""
    with call.site.open_reader() as store:
        summary = summarize_cluster(store, find_cluster(store, call.path["name"]))
        recent = store.events(summary.cluster.qualified_name, limit=_RECENT)
    topology, drawing = draw_topology(summary.current, summary, None)
    values = {"item": summary, "topology": topology, "chips": drawing, "events": recent[::-1], "now": call.site.now()}
    return Answer(template="cluster.html", values=values)


def show_queue(call: Call) -> Answer:
    """Show what runs, what waits, and what drives it."""
    with call.site.open_reader() as store:
        return Answer(template="queue.html", values={"queue": list_queue(store), "now": call.site.now()})


def show_events(call: Call) -> Answer:
    """Show the newest events."""
    cluster, limit = call.query["cluster"], call.query["limit"]
    with call.site.open_reader() as store:
        name = qualify_name(store.project, cluster) if cluster else None
        found = store.events(name, limit=limit)
    return Answer(template="events.html", values={"events": found[::-1], "cluster": cluster})


def draw_curves(view: RunView, axis: Axis) -> tuple[Chart | None, Chart | None]:
    """Return the charts of loss and cost of a run, over the same axis."""
    points = reduce_points(view.points, _MOST_POINTS)
    place, write = _axis_of(view, axis)
    borders = find_borders([place(point) for point in points])
    marks = _list_marks(view, place)
    loss = draw_chart(
        "Loss",
        [Series(name="loss", style="loss", pairs=_pair(points, place, lambda point: point.loss))],
        marks=marks, format_x=write, format_y=lambda value: f"{value:.4g}", borders=borders,
    )  # fmt: skip
    if not view.spending.known or not view.spending.billed:
        return loss, None
    spent = view.spending
    paid = _pair(points, place, lambda point: spent.dollars_until(point.time))
    wasted = _pair(points, place, lambda point: spent.dollars_without_progress_until(point.time))
    cost = draw_chart(
        "Cost",
        [
            Series(name="paid", style="paid", pairs=paid, filled=True),
            Series(name="without progress", style="wasted", pairs=wasted, filled=True),
        ],
        marks=marks, format_x=write, format_y=_dollars, from_zero=True, borders=borders,
    )  # fmt: skip
    return loss, cost


def _axis_of(view: RunView, axis: Axis) -> tuple[Callable[[Point], float], Callable[[float], str]]:
    """Return where a point is on the axis, and how its values are written."""
    begun = view.points[0].time if view.points else 0.0
    match axis:
        case "time":
            return lambda point: point.time - begun, format_duration
        case "dollars":
            return lambda point: view.spending.dollars_until(point.time), _dollars
        case "step":
            return lambda point: float(point.step), lambda value: f"{value:,.0f}"


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value < 100 else f"${value:,.0f}"


def _list_marks(view: RunView, place: Callable[[Point], float]) -> list[Mark]:
    """Return the begin of each later attempt, and the checkpoints."""
    causes = {ended.attempt: ended.cause.value for ended in view.attempts}
    first: dict[int, Point] = {}
    for point in view.points:
        first.setdefault(point.attempt, point)
    begun = sorted(first)
    found = [
        Mark(
            x=place(first[after]), style="attempt", meaning=f"attempt {after} begins: {causes.get(before, 'not known')}"
        )
        for before, after in pairwise(begun)
    ]
    for step in view.saved_steps:
        saved = next((point for point in reversed(view.points) if point.step <= step), None)
        if saved is not None:
            found.append(Mark(x=place(saved), style="saved", meaning=f"checkpoint of step {step:,}"))
    return found


def _pair(
    points: Sequence[Point], place: Callable[[Point], float], value: Callable[[Point], float | None]
) -> list[Pair]:
    """Return the values of a line, with a gap where a later attempt goes back to an earlier step."""
    found: list[Pair] = []
    for before, point in zip((None, *points), points, strict=False):
        if before is not None and place(point) < place(before):
            found.append((place(point), None))
        found.append((place(point), value(point)))
    return found


def draw_topology(
    intent: Intent | None, summary: ClusterSummary, view: RunView | None
) -> tuple[Topology | None, ChipDrawing | None]:
    """Return the topology of a slice and its drawing; None without a slice."""
    if intent is None:
        return None, None
    topology = describe_topology(intent.candidate)
    return topology, draw_chips(topology, find_health(intent, summary, view))


def find_health(intent: Intent, summary: ClusterSummary, view: RunView | None) -> dict[int, HostHealth]:
    """Return what is on record of each host of a slice."""
    ranks = range(intent.candidate.hosts)
    if intent.state in FINAL_STATES:
        health = dict.fromkeys(ranks, HostHealth.ENDED)
    elif summary.state == SliceState.READY:
        health = dict.fromkeys(ranks, HostHealth.READY)
    else:
        health = dict.fromkeys(ranks, HostHealth.UNKNOWN)
    for ended in view.attempts if view is not None else ():
        if ended.generation == intent.generation and ended.rank is not None:
            health[ended.rank] = HostHealth.LOST
    return health
