"""What a run has cost at each moment, and how much of it was paid without progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.documents.curves import Point, parse_point, reduce_points
from orchestrator.documents.spending import Spending, list_billed_times, list_kept_times
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.slices import Candidate, OnDemand

HOUR = 3600.0
POINT = Point(
    step=1, time=0.0, attempt=1, loss=1.0, tokens=None, tokens_per_s=None, mfu=None, memory=None, eta_s=None,
    failed_saves=0, stall_s=0.0,
)  # fmt: skip
CANDIDATE = Candidate(
    provider="gcp", accelerator="v5e", hosts=1, chips_per_host=4, market=OnDemand(), price_per_hour=10
)


def steps(attempt: int, first: int, last: int, at: float) -> list[Point]:
    """Return a point for each step, one a second."""
    return [replace(POINT, step=step, time=at + step - first, attempt=attempt) for step in range(first, last + 1)]


def billed(begin: float, end: float | None, price: float | None = 10.0) -> Intent:
    return Intent(
        generation=1, name="a-1", candidate=replace(CANDIDATE, price_per_hour=price), state=IntentState.ACCEPTED,
        since=begin, billed_from=begin, billed_until=end,
    )  # fmt: skip


def test_a_slice_costs_while_it_is_billed_and_the_job_is_open() -> None:
    times = list_billed_times([billed(0, 3 * HOUR)], [(HOUR, 2 * HOUR)], now=9 * HOUR)
    spent = Spending(billed=times)
    assert [spent.dollars_until(hour * HOUR) for hour in (0, 1, 1.5, 2, 9)] == [0, 0, 5, 10, 10]


def test_machines_that_are_still_billed_cost_until_now() -> None:
    spent = Spending(billed=list_billed_times([billed(0, None)], [(0, 5 * HOUR)], now=2 * HOUR))
    assert (spent.dollars_until(5 * HOUR), spent.dollars_per_hour) == (20, 10)


def test_a_price_that_is_not_known_is_not_zero() -> None:
    spent = Spending(billed=list_billed_times([billed(0, None, None)], [(0, HOUR)], now=HOUR))
    assert (spent.known, spent.dollars_per_hour) == (False, None)


def test_steps_that_were_made_again_are_no_progress() -> None:
    points = [*steps(1, 1, 100, at=50), *steps(2, 61, 120, at=300)]
    assert list_kept_times(points) == ((50, 109), (300, 359))


def test_an_attempt_without_a_kept_step_is_no_progress() -> None:
    points = [*steps(1, 1, 100, at=0), *steps(2, 61, 70, at=200), *steps(3, 61, 90, at=300)]
    assert list_kept_times(points) == ((0, 59), (300, 329))


def test_setup_waiting_and_lost_steps_are_paid_without_progress() -> None:
    points = [*steps(1, 1, 100, at=50), *steps(2, 61, 120, at=300)]
    spent = Spending(
        billed=list_billed_times([billed(0, 400, 3600)], [(0, 400)], now=400), kept=list_kept_times(points)
    )  # a dollar a second
    assert spent.dollars_until(400) == 400
    assert spent.dollars_without_progress_until(400) == pytest.approx(400 - 59 - 59)
    assert spent.dollars_without_progress_until(100) == pytest.approx(50)
    assert spent.dollars_without_progress_until(300) == pytest.approx(300 - 59)


def test_a_long_run_keeps_its_peaks_its_gaps_and_its_end() -> None:
    points = steps(1, 1, 100_000, at=0)
    points[5_555] = replace(points[5_555], loss=77.0)
    points[7_777] = replace(points[7_777], loss=0.001)
    points[12_345] = replace(points[12_345], loss=None)  # neither first nor last of its group
    kept = reduce_points(points, 400)
    assert len(kept) <= 450
    assert {77.0, 0.001, None} <= {point.loss for point in kept}
    assert kept[-1] == points[-1]
    assert [point.time for point in kept] == sorted(point.time for point in kept)
    assert reduce_points(points[:400], 400) == tuple(points[:400])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '{"step": 1}',
        '{"step": "x", "time": "2026-01-01T00:00:00Z"}',
        '{"step": 1, "time": 5}',
        '{"step": 1e999, "time": "2026-01-01T00:00:00Z"}',
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_a_line_that_is_no_record_is_passed_over(line: str) -> None:
    assert parse_point(line, 1) is None


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity", "null", '"1"', "true", "[]", "1" + "0" * 400])
def test_a_loss_that_is_no_number_is_a_gap(loss: str) -> None:
    found = parse_point(f'{{"step": 3, "time": "2026-01-01T00:00:00.000Z", "loss": {loss}}}', 2)
    assert found is not None and (found.step, found.attempt, found.loss) == (3, 2, None)
