"""Random histories of the real engine in a simulated cloud, with crashes at random points."""

from __future__ import annotations

import pytest
from engine_machine import Machine, run_histories
from support.proof import report


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")


@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(120)
def test_in_short_random_histories_every_slice_is_wanted_and_down_leaves_nothing() -> None:
    run_histories(Machine, 8, 10)


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(900)
def test_in_long_random_histories_every_slice_is_wanted_and_down_leaves_nothing() -> None:
    report(f"random histories of the engine: {run_histories(Machine, 20, 25)}: 0 violations")
