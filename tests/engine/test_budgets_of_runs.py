"""Budgets in the real engine: a slice that does not fit is not requested, in a first attempt and in later ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.driving import Listener
from support.simulated import SimHome, sim_candidate, sim_launch, sim_task, use_home

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import BudgetError
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.plan.actions import Action, CreateSlice, StartJob
from orchestrator.plan.spending_budget import SpendingBudget, measure_usage
from orchestrator.plan.steps import GiveUp
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Scenario
from orchestrator.slices import Candidate, Spot
from orchestrator.store.budget_records import list_billed_slices
from orchestrator.task.model import Recovery

ALL = SpendingBudget(project="", member="")
CHEAP, DEAR = sim_candidate(price_per_hour=10.0), sim_candidate(zone="sim-b", price_per_hour=40.0)


class Home(SimHome):
    def set_budget(self, **limits: Any) -> None:
        with open_store(load_paths(), self.services(), "test") as store:
            store.set_budget(replace(ALL, **limits))

    def run(
        self, *candidates: Candidate, cluster: str = "c", listener: Listener | None = None, **task: Any
    ) -> CommandResult:
        ready = sim_launch(sim_task(**task), *candidates, cluster=cluster)
        return drive_cluster(ready, listener or Listener(), services=self.services())

    def set_faults(self, *faults: Fault) -> None:
        assert isinstance(self.access, InMemory)
        cloud = self.access.cloud
        self.access.cloud = SimulatedCloud(replace(cloud.scenario, faults=faults), cloud.clock, cloud.state)

    def spent(self) -> float:
        """Return what is spent this month, in dollars."""
        now = self.clock.now()
        with open_reader() as reader:
            return measure_usage(ALL, list_billed_slices(reader, now), now).month.dollars

    def count(self, call: str) -> int:
        with self.access.open() as cloud:
            return cloud.state.counts.get(call, 0)

    def last_job(self, cluster: str = "c") -> tuple[str, int | None]:
        with open_reader() as reader:
            job = reader.last_run_of(cluster)
        assert job is not None
        return job.code, job.status


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    durations = Durations(create=0.4, end=0.3, stop=0.3, start=0.3, contact=0.01, jitter=0.0)
    made = Home(InMemory(Scenario(durations=durations), ManualClock()))
    with made.access.open() as cloud:
        cloud.set_program("*", Program(seconds=25.0))
    return made


def ending_of(result: CommandResult) -> GiveUp:
    assert isinstance(result.step, GiveUp)
    return result.step


def test_a_slice_that_does_not_fit_is_not_requested_and_ends_the_job_with_the_reason(home: Home) -> None:
    home.set_budget(dollars_per_hour=30.0)
    ending = ending_of(home.run(DEAR))
    assert (ending.status, ending.code) == (Exit.BUDGET, "budget")
    assert ending.why == "$0.00 of $30.00/h is paid now, and the first hour of v5e costs $40.00"
    assert "orch budget set --per-hour N" in str(ending.next_step)
    assert home.count("create") == 0
    assert home.last_job() == ("budget", Exit.BUDGET)
    assert not [path for path in load_paths().state.rglob("c-*") if "keys" in str(path)], "they are deleted"


def test_the_next_candidate_is_tried_where_a_budget_does_not_allow_the_first(home: Home) -> None:
    home.set_budget(dollars_per_hour=30.0)
    listener = Listener()
    assert home.run(DEAR, CHEAP, listener=listener).step.status == Exit.OK
    created = [action.spec.candidate for action in listener.actions if isinstance(action, CreateSlice)]
    assert created == [DEAR, CHEAP]
    assert home.count("create") == 1
    assert any("is paid now, and the first hour" in note for note in listener.notes)


def test_a_later_attempt_is_compared_too(home: Home) -> None:
    """Others spend meanwhile; a slice that replaces a preempted one has to fit again."""
    spot = sim_candidate(market=Spot(), price_per_hour=10.0)
    home.set_budget(dollars_per_month=30.0)

    class Preempting(Listener):
        def starting(self, action: Action) -> None:
            super().starting(action)
            if isinstance(action, StartJob):
                home.pass_time(2.5 * 3600.0)
                with home.access.open() as cloud:
                    cloud.do(cloud.live()[0].name, Deed.PREEMPT)

    listener = Preempting()
    ending = ending_of(home.run(spot, listener=listener, recovery=Recovery(max_preemptions=3)))
    assert listener.steps.count("CreateSlice") == 2, listener.steps
    assert home.count("create") == 1
    assert (ending.status, ending.code) == (Exit.BUDGET, "budget")
    assert "of $30.00 is spent or held this month, and the first hour of v5e costs $10.00" in ending.why
    assert home.last_job() == ("budget", Exit.BUDGET)
    with home.access.open() as cloud:
        assert not cloud.live()


class Saving(Listener):
    """Lowers the budget when the program starts."""

    def __init__(self, home: Home, **limits: Any) -> None:
        super().__init__()
        self._home, self._limits = home, limits

    def starting(self, action: Action) -> None:
        super().starting(action)
        if isinstance(action, StartJob):
            self._home.set_budget(**self._limits)


@pytest.mark.parametrize("limit", ["dollars_per_month", "dollars_per_run"])
def test_a_spent_budget_ends_its_runs_where_that_is_set(home: Home, limit: str) -> None:
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=600.0))
    listener, began = Saving(home, **{limit: 0.2}, at_limit="stop"), home.clock.now()
    ending = ending_of(home.run(CHEAP, listener=listener))
    assert (ending.status, ending.code) == (Exit.TIMEOUT, "limit")
    assert "the budget of everything is spent: $0." in ending.what
    assert "orch budget" in str(ending.next_step)
    assert listener.steps[-5:] == ["EndAttempt", "StopJob", "Conclude", "EndSlice", "ForgetSlice"]
    assert 72.0 <= home.clock.now() - began < 240.0, "$0.20 are 72 s"


def test_a_spent_budget_refuses_further_slices_alone_where_nothing_else_is_set(home: Home) -> None:
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=120.0))
    assert home.run(CHEAP, listener=Saving(home, dollars_per_month=0.2)).step.status == Exit.OK
    assert ending_of(home.run(CHEAP, cluster="d")).status == Exit.BUDGET


def test_a_stopped_slice_is_not_started_beyond_the_budget(home: Home) -> None:
    assert home.run(CHEAP).step.status == Exit.OK
    drive_cluster(commands.prepare_stop("c"), Listener(), services=home.services())
    started = commands.prepare_start("c")
    home.set_budget(dollars_per_hour=5.0)
    ending = ending_of(drive_cluster(started, Listener(), services=home.services()))
    assert (ending.status, ending.code) == (Exit.BUDGET, "budget")
    assert home.count("start") == 0
    with open_reader() as reader:
        assert reader.clusters()[0].desired_state == "stopped"


def test_machines_cost_until_the_provider_reports_them_as_stopped(home: Home) -> None:
    home.set_budget(dollars_per_month=1000.0)
    assert home.run(CHEAP).step.status == Exit.OK
    home.set_faults(Fault(call="stop", kind=FaultKind.DENIED, rate=1.0))
    assert drive_cluster(commands.prepare_stop("c"), Listener(), services=home.services()).step.status != Exit.OK
    home.pass_time(10 * 3600.0)
    assert 100.0 <= (spent := home.spent()) < 102.0
    home.set_faults()
    drive_cluster(commands.prepare_stop("c"), Listener(), services=home.services())
    home.pass_time(10 * 3600.0)
    assert spent <= home.spent() < 102.0, "they are observed as stopped"
    drive_cluster(commands.prepare_start("c"), Listener(), services=home.services())
    home.pass_time(10 * 3600.0)
    assert 200.0 <= home.spent() < 202.0


def test_a_command_is_refused_before_anything_is_on_record(home: Home) -> None:
    """A start whose plan is made now; launches are in tests/cli/test_budget_command.py."""
    assert home.run(CHEAP).step.status == Exit.OK
    drive_cluster(commands.prepare_stop("c"), Listener(), services=home.services())
    home.set_budget(dollars_per_hour=5.0)
    ready = commands.prepare_start("c")
    with pytest.raises(BudgetError, match=r"\$10.00 of \$5.00/h is paid now"):
        ready.raise_refusal()
