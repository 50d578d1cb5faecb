"""Random histories of the real engine in a simulated cloud, with crashes at random points."""

from __future__ import annotations

from collections import Counter

import pytest
from engine_machine import Machine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from support.proof import report


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")


def run(kind: type[Machine], examples: int, steps: int) -> str:
    """Words for the counts. Raises what the first broken history raises, made small."""
    Machine.counts = Counter()
    checks = list(HealthCheck)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis gives it no types
        kind,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks, database=None
        ),
    )
    return ", ".join(f"{count} {what}" for what, count in sorted(Machine.counts.items()))


@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(120)
def test_in_short_random_histories_every_slice_is_wanted_and_down_leaves_nothing() -> None:
    run(Machine, 8, 10)


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(900)
def test_in_long_random_histories_every_slice_is_wanted_and_down_leaves_nothing() -> None:
    report(f"random histories of the engine: {run(Machine, 20, 25)}: 0 violations")
