"""Hosts that do not answer: from when that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.simulated import SimHome, sim_launch, sim_task, use_home

from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Happening, Scenario

SILENT = (100.0, 340.0)  # seconds after the slice became ready: longer than any patience with a host
BLIND = (150.0, 320.0)  # seconds after the cloud's birth: the provider cannot be asked, which is not its deadline yet


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def attempts(*, blind: bool) -> int:
    """Return how many attempts it took when all hosts are silent for a while, with or without an answering provider."""
    silence = tuple(
        Happening(do=Deed.SILENCE_HOST, after_ready=SILENT[0], seconds=SILENT[1] - SILENT[0], rank=rank)
        for rank in (0, 1)
    )
    faults = (Fault(call="get", kind=FaultKind.UNAVAILABLE, rate=1.0, begin=BLIND[0], end=BLIND[1]),) if blind else ()
    scenario = Scenario(happenings=silence, faults=faults, durations=Durations(create=4.0, end=2.0, jitter=0.0))
    home = SimHome(InMemory(scenario, ManualClock()))
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=600.0))
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status == 0, ending
    return len(ending.attempts) + 1


def test_silence_counts_from_an_observation_of_hosts_that_should_answer() -> None:
    assert attempts(blind=True) == 1, (
        "hosts that were silent while the provider was too: the network between us and them failed"
    )


def test_hosts_that_stay_silent_while_the_provider_reports_them_healthy_are_lost() -> None:
    assert attempts(blind=False) == 2
