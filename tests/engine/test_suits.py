"""A task for other machines than its cluster has is refused before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.simulated import SimHome, sim_launch, sim_task, use_home

from orchestrator.engine import prepare
from orchestrator.engine.known import known, open_reader
from orchestrator.engine.suits import surplus
from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Scenario


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimHome:
    """With a cluster `c` of two hosts, whose first job has ended."""
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    home = SimHome(InMemory(Scenario(), ManualClock()))
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=5.0))
    assert home.drive(sim_launch(sim_task())).status == Exit.OK
    return home


def jobs() -> int:
    with open_reader() as reader:
        cluster = reader.cluster("c")
        return len(reader.jobs(cluster)) if cluster is not None else 0


def test_more_hosts_than_there_are_are_refused(home: SimHome) -> None:
    ready = sim_launch(sim_task(run="echo 2"), home.candidate(3))
    with pytest.raises(ConflictError) as caught:
        home.drive(ready)
    assert "it has 2 hosts of v5e; asked for: 3 hosts of v5e" in str(caught.value)
    assert "orch down c" in caught.value.next_step
    assert jobs() == 1, "nothing was begun"


def test_other_machines_are_refused_unless_one_of_the_choices_is_right(home: SimHome) -> None:
    other = replace(home.candidate(2), accelerator="H100")
    with pytest.raises(ConflictError):
        home.drive(sim_launch(sim_task(run="echo 2"), other))
    assert home.drive(sim_launch(sim_task(run="echo 2"), other, home.candidate(2))).status == Exit.OK


def test_fewer_hosts_run_on_all_and_that_is_said(home: SimHome) -> None:
    with open_reader() as reader:
        now = known(reader, "c")
    assert surplus("c", now, [home.candidate(1)]) == "'c' has 2 hosts; 1 asked for: the program runs on all of them"
    assert surplus("c", now, [home.candidate(1), home.candidate(2)]) == ""
    assert home.drive(sim_launch(sim_task(run="echo 2"), home.candidate(1))).status == Exit.OK
    assert jobs() == 2


def test_after_down_any_machines_may_come(home: SimHome) -> None:
    home.drive(prepare.down("c"))
    assert home.drive(sim_launch(sim_task(run="echo 2"), home.candidate(3))).status == Exit.OK
