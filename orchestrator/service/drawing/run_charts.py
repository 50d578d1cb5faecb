"""The charts of runs: loss and cost of one run, and the losses of several over one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

from orchestrator.documents.comparison import ComparedRun
from orchestrator.documents.curves import Point, reduce_points
from orchestrator.documents.run_view import RunView
from orchestrator.formatting import format_amount, format_duration, format_short_amount
from orchestrator.service.drawing.chart import (
    Chart,
    Mark,
    Pair,
    Series,
    choose_ticks,
    choose_time_ticks,
    draw_chart,
    find_borders,
)

MOST_POINTS = 600  # of one chart, which is 640 units wide
_MOST_OF_ALL = 1600  # points of the charts of several runs
_LABEL_WIDTH = 120
Axis = Literal["step", "time", "dollars"]


def draw_curves(view: RunView, axis: Axis) -> tuple[Chart | None, Chart | None]:
    """Return the charts of loss and cost of a run, over the same axis."""
    points = reduce_points(view.points, MOST_POINTS)
    place, write = _find_axis(view, axis)
    axis_of = _describe_axis(axis)
    borders = find_borders([place(point) for point in points])
    marks = _list_marks(view, place)
    loss = draw_chart(
        "Loss",
        [Series(name="loss", style="loss", pairs=_pair_losses(points, place))],
        marks=marks, format_x=write, format_y=lambda value: f"{value:.4g}", borders=borders, **axis_of,
    )  # fmt: skip
    if not view.spending.known or not view.spending.billed:
        return loss, None
    spent = view.spending
    paid = _pair_points(points, place, lambda point: spent.dollars_until(point.time))
    wasted = _pair_points(points, place, lambda point: spent.dollars_without_progress_until(point.time))
    cost = draw_chart(
        "Cost",
        [
            Series(name="paid", style="paid", pairs=paid, filled=True),
            Series(name="without progress", style="wasted", pairs=wasted, filled=True),
        ],
        marks=marks, format_x=write, format_y=_format_round_dollars, from_zero=True, borders=borders,
        format_end=format_short_amount, **axis_of,
    )  # fmt: skip
    return loss, cost


def draw_losses(runs: Sequence[ComparedRun], axis: Axis) -> Chart | None:
    """Return the losses of several runs over one another, or None when none of them has one.

    Over dollars those are left out whose cost is not known.
    """
    drawn = [one for one in runs if one.view.points and (axis != "dollars" or one.view.spending.known)]
    series: list[Series] = []
    write: Callable[[float], str] = str
    for one in drawn:
        place, write = _find_axis(one.view, axis)
        points = reduce_points(one.view.points, _MOST_OF_ALL // len(drawn) if len(drawn) > 2 else MOST_POINTS)
        pairs = _pair_losses(points, place)
        series.append(Series(name=one.letter, style=f"run-{one.letter.lower()}", pairs=pairs))
    return draw_chart(
        "Loss", series, format_x=write, format_y=lambda value: f"{value:.4g}", label_width=_LABEL_WIDTH,
        most=_find_most(drawn), format_end=lambda value: f"{value:.4f}", **_describe_axis(axis),
    )  # fmt: skip


def _find_most(runs: Sequence[ComparedRun]) -> float | None:
    """Return the highest loss after the first tenth of the runs: the fall before it would hide their differences."""
    later = [
        point.loss for one in runs for point in one.view.points[len(one.view.points) // 10 :] if point.loss is not None
    ]
    return max(later, default=None)


def _find_axis(view: RunView, axis: Axis) -> tuple[Callable[[Point], float], Callable[[float], str]]:
    """Return where a point is on the axis, and how its values are written."""
    begun = view.points[0].time if view.points else 0.0
    match axis:
        case "time":
            return lambda point: point.time - begun, _format_time
        case "dollars":
            return lambda point: view.spending.dollars_until(point.time), _format_round_dollars
        case "step":
            return lambda point: float(point.step), lambda value: f"{value:,.0f}"


def _describe_axis(axis: Axis) -> dict[str, Any]:
    """Return the name of an axis, where its numbers have no unit, and what chooses them."""
    return {"x_name": axis if axis == "step" else "", "choose_x": choose_time_ticks if axis == "time" else choose_ticks}


def _format_time(seconds: float) -> str:
    """Format a time of the axis: `0`, `30 s`, `15 min`, `1 h 30 min`."""
    if not seconds:
        return "0"
    return format_duration(seconds) if seconds % 60 or seconds >= 3600 else f"{seconds / 60:.0f} min"


def _format_round_dollars(value: float) -> str:
    """Format dollars of an axis: without cents where there are none."""
    return format_amount(value, 0) if value == int(value) else format_short_amount(value)


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


def _pair_losses(points: Sequence[Point], place: Callable[[Point], float]) -> list[Pair]:
    """Return the losses of a line, with a gap between attempts: no step was made there."""
    found: list[Pair] = []
    for before, point in zip((None, *points), points, strict=False):
        if before is not None and point.attempt != before.attempt:
            found.append((place(point), None))
        found.append((place(point), point.loss))
    return found


def _pair_points(
    points: Sequence[Point], place: Callable[[Point], float], value: Callable[[Point], float | None]
) -> list[Pair]:
    """Return the values of a line, with a gap where a later attempt goes back to an earlier step."""
    found: list[Pair] = []
    for before, point in zip((None, *points), points, strict=False):
        if before is not None and place(point) < place(before):
            found.append((place(point), None))
        found.append((place(point), value(point)))
    return found
