"""Random histories of the real engine in a simulated cloud, with crashes at random points."""

from __future__ import annotations

import pytest
from engine_machine import Machine, run_histories
from support.lanes import by_lane, spread
from support.proof import report


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")


@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(300)
def test_in_short_random_histories_no_slice_is_orphaned_and_down_leaves_nothing() -> None:
    run_histories(Machine, 3, 8)


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", spread(range(by_lane(1, 12))))
def test_in_long_random_histories_no_slice_is_orphaned_and_down_leaves_nothing(part: int) -> None:
    faults = "crash, duplicate, time-out, preemption, list lag, stuck deletes, foreign machines"
    report(f"random histories of the engine: {faults}", run_histories(Machine, by_lane(3, 20), 25))
