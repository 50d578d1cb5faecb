"""What charts and topologies show of what they are given."""

from __future__ import annotations

import itertools
import re

from orchestrator.documents.topology import describe_topology
from orchestrator.hosts import ChipReport, ChipSample
from orchestrator.service.drawing.chart import HEIGHT, TOP, Pair, Series, draw_chart
from orchestrator.service.drawing.chip_marks import Grade, Measure, mark_chips
from orchestrator.service.drawing.chips import draw_chips
from orchestrator.slices import Candidate, OnDemand, Spot


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


def mark(measure: Measure, machine: str, *chips: ChipSample, count: int = 8) -> list[tuple[str, str, Grade]]:
    """Return the marks of the one host of a machine."""
    candidate = Candidate(provider="aws", accelerator=machine, hosts=1, chips_per_host=count, market=OnDemand())
    found = mark_chips(measure, describe_topology(candidate), {0: ChipReport(age=1.0, chips=chips)})
    return [(one.text, one.words, one.grade) for one in found[0]]


def test_of_chips_that_are_left_no_place_is_known() -> None:
    seven = [ChipSample(name=str(number), use=0.9) for number in range(7)]
    assert mark("use", "p5.48xlarge", *seven) == [("", "7 of 8 chips report", Grade.UNKNOWN)]
    assert len(mark("use", "p5.48xlarge", *seven, ChipSample(name="7"))) == 8


def test_cores_are_drawn_as_their_chip() -> None:
    cores = [
        ChipSample(name=str(core), use=core % 2 / 2, used=2**30, total=4 * 2**30, errors=core // 2)
        for core in range(32)
    ]
    found = mark("use", "trn1.32xlarge", *cores, count=16)
    assert len(found) == 16 and found[0] == ("25", "25 % in use", Grade.PLAIN)
    assert found[1][1] == "25 % in use, 1 uncorrected error"
    assert mark("memory", "trn1.32xlarge", *cores, count=16)[0][1] == "25 % of 8.0 GiB in use"


def test_a_chip_is_hot_only_by_its_own_limit() -> None:
    chips = [
        ChipSample(name="0", temperature=87.4, slowdown=88.0), ChipSample(name="1", temperature=88.0, slowdown=88.0),
        ChipSample(name="2", temperature=150.0), *(ChipSample(name=str(number)) for number in range(3, 8)),
    ]  # fmt: skip
    assert [grade for _, _, grade in mark("temperature", "p5.48xlarge", *chips)] == [
        Grade.PLAIN, Grade.HOT, Grade.PLAIN, *[Grade.UNKNOWN] * 5,
    ]  # fmt: skip
