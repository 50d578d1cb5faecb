"""Random histories of the real engine and the real provider of Google's TPUs, over sockets, with crashes anywhere."""

from __future__ import annotations

import shutil

import pytest
from engine_machine import run_histories
from support.lanes import by_lane, spread
from support.proof import report
from tpu_machine import TpuMachine
from tpu_verbs import NotedAfterwards

from orchestrator.providers.google import retries


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(retries, "_sleep", lambda _: None)  # the pauses between looks are real time, which stands still


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", spread(range(by_lane(1, 6))))
def test_in_random_histories_on_google_no_slice_is_orphaned_and_down_leaves_nothing(part: int) -> None:
    counts = run_histories(TpuMachine, by_lane(4, 20), 10)
    report("random histories of the Google provider over sockets", counts)


class NotedAfterwardsMachine(TpuMachine):
    kind = NotedAfterwards


@pytest.mark.promise("P2")
def test_the_histories_find_a_second_slice_when_names_are_recorded_after_the_create() -> None:
    machine = NotedAfterwardsMachine()
    machine.begin(lag=0.0, page=50, exits=0, spot=False)
    try:
        for deadly in range(10, 30):  # each launch dies one point later than the one before
            machine.command("launch", deadly)
            if machine.log[-1] == "launch: killed answered POST nodes":
                break
            machine.command("down", 0)
        machine.command("launch", 0)
        with pytest.raises(AssertionError):
            machine.one_slice_for_an_intent()
    finally:
        machine.server.__exit__(None, None, None)
        shutil.rmtree(machine.root)
