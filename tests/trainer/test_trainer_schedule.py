"""The learning-rate schedule, and how often the numbers of a step are read."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_ranks import free_port

from trainer.cadence import Cadence
from trainer.config import DistConfig, OptimConfig, ScheduleName
from trainer.environment import World
from trainer.schedule import learning_rate
from trainer.tcp_team import join_team


def rates(schedule: ScheduleName, steps: int = 100, **more: float) -> list[float]:
    optim = OptimConfig(lr=1.0, schedule=schedule, warmup=10, floor=0.1, **more)  # type: ignore[arg-type]  # floats only
    return [learning_rate(optim, steps, step) for step in range(steps + 20)]


@pytest.mark.parametrize("schedule", ["cosine", "wsd", "constant"])
def test_the_warm_up_is_a_straight_line_to_the_peak(schedule: ScheduleName) -> None:
    assert rates(schedule)[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert rates(schedule)[10] == 1.0


def test_cosine_is_half_way_at_half_time_and_ends_at_the_floor() -> None:
    curve = rates("cosine")
    assert curve[55] == pytest.approx((1 + 0.1) / 2)
    assert curve[100:] == pytest.approx([0.1] * 20)


def test_wsd_is_level_then_a_straight_line_to_the_floor() -> None:
    curve = rates("wsd", decay=0.2)
    assert curve[10:81] == [1.0] * 71
    assert curve[90] == pytest.approx((1 + 0.1) / 2)
    assert curve[100:] == pytest.approx([0.1] * 20)
    assert rates("wsd", decay=0.0)[99] == 1.0


def test_constant_stays() -> None:
    assert set(rates("constant")[10:]) == {1.0}


@given(
    schedule=st.sampled_from(["cosine", "wsd", "constant"]),
    steps=st.integers(1, 300),
    warmup=st.integers(0, 400),
    decay=st.floats(0, 1),
    floor=st.floats(0, 1),
)
def test_the_rate_never_leaves_its_bounds_and_never_rises_after_the_warm_up(
    schedule: ScheduleName, steps: int, warmup: int, decay: float, floor: float
) -> None:
    optim = OptimConfig(lr=2.0, schedule=schedule, warmup=warmup, decay=decay, floor=floor)
    curve = [learning_rate(optim, steps, step) for step in range(warmup, steps + 3)]
    assert all(2.0 * floor - 1e-9 <= rate <= 2.0 + 1e-9 for rate in curve)
    assert warmup >= steps or curve[0] == pytest.approx(2.0), "it begins at the peak, however long the way down is"
    assert all(later <= before + 1e-9 for before, later in itertools.pairwise(curve))


def test_all_ranks_read_the_same_steps_and_the_slowest_one_decides() -> None:
    port = free_port()

    def one(rank: int) -> list[int]:
        team = join_team(World(rank=rank, size=2, coordinator=f"127.0.0.1:{port}"), DistConfig(), "x")
        cadence, looks = Cadence(team, 64), list[int]()
        for step in (1, 2, 3):
            time.sleep(0.2 if rank else 0.01)
            cadence.record_read(step)
        looks = [step for step in range(4, 100) if cadence.is_due(step)]
        team.close()
        return looks

    with ThreadPoolExecutor(2) as pool:
        slow, quick = pool.map(one, (1, 0))
    assert slow == quick
    assert 9 <= len(slow) <= 14, "about 10 steps of 0.2 s hold 2 s"
