"""A task for other machines than its cluster has is refused before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.simulated import SimHome, sim_launch, sim_task, use_home

from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.cluster_match import surplus_hosts_note
from orchestrator.engine.state.recorded import load_observed, open_reader
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


def test_more_hosts_than_the_cluster_has_are_refused(home: SimHome) -> None:
    ready = sim_launch(sim_task(run="echo 2"), home.candidate(3))
    with pytest.raises(ConflictError) as caught:
        home.drive(ready)
    assert "it has 2 hosts of v5e; requested: 3 hosts of v5e" in str(caught.value)
    assert "orch down c" in caught.value.next_step
    assert jobs() == 1, "nothing was begun"


def test_other_machines_are_refused_unless_one_of_the_choices_is_right(home: SimHome) -> None:
    other = replace(home.candidate(2), accelerator="H100")
    with pytest.raises(ConflictError):
        home.drive(sim_launch(sim_task(run="echo 2"), other))
    assert home.drive(sim_launch(sim_task(run="echo 2"), other, home.candidate(2))).status == Exit.OK


def test_a_task_for_fewer_hosts_runs_on_all_with_a_note(home: SimHome) -> None:
    with open_reader() as reader:
        now = load_observed(reader, "c")
    assert (
        surplus_hosts_note("c", now, [home.candidate(1)])
        == "'c' has 2 hosts; 1 are requested: the program runs on all of them"
    )
    assert surplus_hosts_note("c", now, [home.candidate(1), home.candidate(2)]) == ""
    assert home.drive(sim_launch(sim_task(run="echo 2"), home.candidate(1))).status == Exit.OK
    assert jobs() == 2


def test_after_down_any_machines_are_accepted(home: SimHome) -> None:
    home.drive(commands.prepare_down("c"))
    assert home.drive(sim_launch(sim_task(run="echo 2"), home.candidate(3))).status == Exit.OK
