"""A chart with lines, areas and marks over one axis, as numbers for an SVG.

The server draws it, so that the page is complete without script; a script adds the cursor that both charts share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

Pair = tuple[float, float | None]

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 84, 14, 14, 36
_FEW_TICKS = 5
_DAY = 86400
_TIME_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, _DAY,
)  # fmt: skip
_HEADROOM = 1.12  # above lines from zero, which rise to their label
_FALL = 0.02  # of its range: by how much a line falls in its last quarter
_LABEL_HEIGHT = 30  # of a label in the plot on a phone, with some space
_LABEL_GAP = 24  # between two labels beside the plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: values over x, in order; a value of None is a gap.

    Attributes:
        name: What it is, for the legend.
        style: Its class in the style sheet.
        filled: Whether the area below it is filled.
    """

    name: str
    style: str
    pairs: Sequence[Pair]
    filled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment: a vertical line with its meaning."""

    x: float
    style: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A number on an axis, at a coordinate of the drawing."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of the drawing."""

    style: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last value of a line, with its label.

    Attributes:
        label_y: Where the label is, beside the plot; None for a label at the value itself.
        text_y: Where that label is.
    """

    x: float
    y: float
    text: str
    style: str
    label_y: float | None = None
    text_y: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawn chart; all coordinates are those of a box of WIDTH by HEIGHT.

    Attributes:
        title: What it shows.
        summary: One sentence for those who do not see it.
        x_name: What the x axis is, beside its numbers.
        marks: Pairs of a coordinate along x and the mark.
        ends: The last value of each line.
        low, high: The values of x at the left and right border.
        right: The right border of the plot.
    """

    title: str
    summary: str
    x_name: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    shapes: tuple[Shape, ...]
    marks: tuple[tuple[float, Mark], ...]
    ends: tuple[End, ...]
    low: float
    high: float
    right: float


def draw_chart(
    title: str,
    series: Sequence[Series],
    *,
    marks: Sequence[Mark] = (),
    format_x: Callable[[float], str],
    format_y: Callable[[float], str],
    from_zero: bool = False,
    borders: tuple[float, float] | None = None,
    label_width: float = 0,
    most: float | None = None,
    format_end: Callable[[float], str] | None = None,
    x_name: str = "",
    choose_x: Callable[[float, float], list[float]] | None = None,
) -> Chart | None:
    """Draw a chart, or return None when there is no value.

    Args:
        title: What it shows.
        series: Its lines.
        marks: Its moments; those beyond the borders are left out.
        format_x: Writes a value of x.
        format_y: Writes a value of y.
        from_zero: Whether the y axis begins at 0.
        borders: The values of x at both borders, so that two charts share one axis; None for those of the lines.
        label_width: Space for the labels beside the plot, where they do not cover each other; 0 for labels in the plot.
        most: The highest y of the plot; lines leave it above. None for the highest value.
        format_end: Writes the last value of a line; None for `format_y`.
        x_name: What the x axis is.
        choose_x: Chooses the numbers of the x axis; None for round ones.
    """
    known = [(x, y) for one in series for x, y in one.pairs if y is not None]
    if not known:
        return None
    low, high = borders or (min(x for x, _ in known), max(x for x, _ in known))
    bottom, top = min(y for _, y in known), max(y for _, y in known)
    if most is not None and bottom < most < top:
        top = most
    y_values = choose_ticks(0.0, top * _HEADROOM) if from_zero else choose_ticks(bottom, top)
    right = WIDTH - RIGHT - label_width
    x_scale = _scale(low, high, LEFT, right)
    y_scale = _scale(min(y_values[0], bottom), max(y_values[-1], top), HEIGHT - BOTTOM, TOP)
    ends = [_draw_end(one, x_scale, y_scale, format_end or format_y) for one in series if _last(one) is not None]
    return Chart(
        title=title,
        summary=_summarize(title, series, format_x, format_y),
        x_name=x_name,
        x_ticks=tuple(Tick(x_scale(x), format_x(x)) for x in (choose_x or choose_ticks)(low, high) if low <= x <= high),
        y_ticks=tuple(Tick(y_scale(y), format_y(y)) for y in y_values),
        shapes=tuple(shape for one in series for shape in _draw_series(one, x_scale, y_scale)),
        marks=tuple((x_scale(mark.x), mark) for mark in marks if low <= mark.x <= high),
        ends=tuple(_spread_labels(ends) if label_width else ends),
        low=low,
        high=high,
        right=right,
    )


def find_borders(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the lowest and highest value, or None without one."""
    return (min(values), max(values)) if values else None


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    span = high - low
    return lambda value: (begin + end) / 2 if span == 0 else begin + (value - low) / span * (end - begin)


def choose_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that enclose the values."""
    if low == high:
        return [low]
    rough = (high - low) / _FEW_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return _list_multiples(low, high, step)


def choose_time_ticks(low: float, high: float) -> list[float]:
    """Return about five times in seconds that people count in: minutes, quarters of an hour, hours, days."""
    if low == high:
        return [low]
    rough = (high - low) / _FEW_TICKS
    step = next((step for step in _TIME_STEPS if step >= rough), _DAY * math.ceil(rough / _DAY))
    return _list_multiples(low, high, step)


def _list_multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def _draw_series(one: Series, x_scale: Callable[[float], float], y_scale: Callable[[float], float]) -> list[Shape]:
    """Return the path of a line, broken at its gaps, and that of the area below it."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in one.pairs:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x_scale(x), y_scale(y)))
    pieces = [piece for piece in pieces if piece]
    line = " ".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece) for piece in pieces)
    shapes = [Shape(f"line {one.style}", line)]
    if one.filled:
        floor = HEIGHT - BOTTOM
        area = " ".join(_close(piece, floor) for piece in pieces)
        shapes.insert(0, Shape(f"area {one.style}", area))
    return shapes


def _close(piece: Sequence[tuple[float, float]], floor: float) -> str:
    """Return the path around the area below a line."""
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in piece)
    return f"M{piece[0][0]:.1f} {floor}L{line}L{piece[-1][0]:.1f} {floor}Z"


def _last(one: Series) -> tuple[float, float] | None:
    return next(((x, y) for x, y in reversed(one.pairs) if y is not None), None)


def _draw_end(
    one: Series, x_scale: Callable[[float], float], y_scale: Callable[[float], float], format_y: Callable[[float], str]
) -> End:
    x, y = _last(one) or (0.0, 0.0)
    known = [value for _, value in one.pairs if value is not None]
    place = y_scale(y)
    # A label at a line that comes from above, or is not filled, would cover its last part.
    falls = known[len(known) * 3 // 4] - y > _FALL * (max(known) - min(known))
    below = place < _LABEL_HEIGHT or (falls and place + _LABEL_HEIGHT < HEIGHT - BOTTOM)
    text_y = place + 20 if below else place - (8 if one.filled else 16)
    return End(x=x_scale(x), y=place, text=f"{one.name} {format_y(y)}", style=one.style, text_y=text_y)


def _spread_labels(ends: Sequence[End]) -> list[End]:
    """Place the labels near their values, none over another."""
    places: dict[int, float] = {}
    lowest = HEIGHT - BOTTOM - _LABEL_GAP * (len(ends) - 1)
    free = float(TOP)
    for number, index in enumerate(sorted(range(len(ends)), key=lambda index: ends[index].y)):
        places[index] = max(free, min(ends[index].y, lowest + _LABEL_GAP * number))
        free = places[index] + _LABEL_GAP
    return [replace(end, label_y=places[index]) for index, end in enumerate(ends)]


def _summarize(
    title: str, series: Sequence[Series], format_x: Callable[[float], str], format_y: Callable[[float], str]
) -> str:
    sentences: list[str] = []
    for one in series:
        known = [(x, y) for x, y in one.pairs if y is not None]
        if known:
            (first, begin), (last, end) = known[0], known[-1]
            sentences.append(
                f"{one.name}: {format_y(begin)} at {format_x(first)}, {format_y(end)} at {format_x(last)}."
            )
    return f"{title}. {' '.join(sentences)}"
