"""What charts and topologies show of what they are given."""

from __future__ import annotations

import itertools
import re

from orchestrator.service.drawing.chart import HEIGHT, TOP, Pair, Series, draw_chart
from orchestrator.service.drawing.chips import draw_chips
from orchestrator.slices import Candidate, Spot
from orchestrator.summaries.topology import describe_topology


def series(name: str, *values: float) -> Series:
    pairs: list[Pair] = [(float(x), y) for x, y in enumerate(values)]
    return Series(name=name, style=name, pairs=pairs)


def test_labels_beside_the_plot_do_not_cover_each_other_and_stay_in_it() -> None:
    lines = [series(name, 9.0, 2.0 + number / 100) for number, name in enumerate("ABCDEFGH")]
    chart = draw_chart("Loss", lines, format_x=str, format_y=str, label_width=120)
    assert chart is not None
    places = sorted(end.label_y for end in chart.ends if end.label_y is not None)
    assert len(places) == 8 and places[0] >= TOP and places[-1] <= HEIGHT
    assert min(later - earlier for earlier, later in itertools.pairwise(places)) >= 20
    assert [end.text[0] for end in sorted(chart.ends, key=lambda end: end.label_y or 0)] == list("HGFEDCBA")


def test_a_first_fall_leaves_the_plot_and_its_differences_stay() -> None:
    lines = [series("A", 100.0, 3.0, 2.5), series("B", 100.0, 3.0, 2.0)]
    whole = draw_chart("Loss", lines, format_x=str, format_y=str)
    cut = draw_chart("Loss", lines, format_x=str, format_y=str, most=3.0)
    assert whole is not None and cut is not None
    assert abs(whole.ends[0].y - whole.ends[1].y) < 2 < 50 < abs(cut.ends[0].y - cut.ends[1].y)
    assert min(float(y) for y in re.findall(r" (-?[\d.]+)", cut.shapes[0].path)) < 0, "it is above the plot"


def test_many_planes_are_in_rows_that_fit() -> None:
    slice_of_256 = Candidate(
        provider="gcp", accelerator="v5p-512", hosts=64, chips_per_host=4, market=Spot(), price_per_hour=1.0
    )
    drawing = draw_chips(describe_topology(slice_of_256), {})
    assert drawing.width <= 500
    squares = [(one.x, one.y) for host in drawing.hosts for one in host.squares]
    assert len(set(squares)) == len(squares) == 256, "no chip covers another"
    assert max(x for x, _ in squares) < drawing.width and max(y for _, y in squares) < drawing.height
    labels = [(x, y) for x, y, _ in drawing.labels]
    assert len(set(labels)) == 8 and len({y for _, y in labels}) == 2
