"""Long waits and near limits, from what is on record; silent hosts, from an engine on simulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_history import FAILURE, History
from support.simulated import SimHome, sim_launch, sim_task, use_home

from orchestrator.engine.state.recorded import open_reader
from orchestrator.notifications.conditions import Condition, Thresholds, find_conditions
from orchestrator.notifications.notices import Kind
from orchestrator.notifications.reading import read_budget_conditions, read_histories, read_notices
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Happening, Scenario
from orchestrator.store.read import Reader

LIMITS = Thresholds(waiting=1800.0, near=0.8)


def conditions(history: History, home: Path) -> tuple[Condition, ...]:
    with Reader(home / "state" / "orch.db") as reader:
        return tuple(
            found for one in read_histories(reader) for found in find_conditions(one, LIMITS, history.clock.at)
        )


def observe(history: History, state: str) -> None:
    cluster = history.store.cluster("mine")
    assert cluster is not None
    history.store.note_state(cluster, state)


def test_a_job_that_waits_for_machines_for_long_says_where_and_the_last_refusal(
    history: History, own_home: Path
) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.slice(cluster, 1, IntentState.REFUSED, cause=EndCause.REFUSED)
    history.slice(cluster, 2, IntentState.ACCEPTED)
    history.clock.at += 1790
    observe(history, "creating")
    assert conditions(history, own_home) == ()
    history.clock.at += 10
    (found,) = conditions(history, own_home)
    assert found.what.startswith("job 1 of 'mine' has waited for machines for 30 min; requested: ")
    assert "us-west4-a" in found.what and found.what.endswith(": taken back")
    assert found.cause == f"waiting: attempt {cluster.uid}/{job.id}/1"


@pytest.mark.parametrize("why", ["ready", "started", "queued", "ended", "going down", "observed long ago"])
def test_what_does_not_wait_for_machines(history: History, own_home: Path, why: str) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.slice(cluster, 1, IntentState.ACCEPTED)
    if why == "queued":
        history.end(cluster, job)
        history.store.set_desired_state(cluster, "up")
    if why == "started":
        history.start(cluster, job)
    if why == "ended":
        history.end(cluster, job, FAILURE)
    if why == "going down":
        history.store.set_desired_state(cluster, "down")
    observe(history, "ready" if why == "ready" else "creating")
    history.clock.at += 4000
    if why != "observed long ago":
        observe(history, "ready" if why == "ready" else "creating")
    assert conditions(history, own_home) == ()


def test_a_wait_begins_again_after_a_loss(history: History, own_home: Path) -> None:
    cluster = history.cluster()
    job = history.job(cluster)
    history.slice(cluster, 1, IntentState.ACCEPTED)
    history.start(cluster, job)
    history.clock.at += 50_000
    history.lose(cluster, job, EndCause.PREEMPTED)
    history.slice(cluster, 1, IntentState.ENDING, IntentState.DELETED, cause=EndCause.PREEMPTED)
    history.slice(cluster, 2, IntentState.ACCEPTED)
    observe(history, "creating")
    history.clock.at += 60
    assert conditions(history, own_home) == ()
    history.clock.at += 1800
    observe(history, "creating")
    (found,) = conditions(history, own_home)
    assert "31 min" in found.what and found.cause.endswith("/1/2")


def test_limits_are_near_from_the_configured_part_on_by_the_reckoning_that_ends_machines(
    history: History, own_home: Path
) -> None:
    cluster = history.cluster()
    history.store.set_limits(cluster, {"max_cost": 20.0, "max_hours": 10.0})
    history.slice(cluster, 1, IntentState.ACCEPTED)  # at $10 an hour
    history.clock.at += 1.59 * 3600
    assert conditions(history, own_home) == ()
    history.clock.at += 0.02 * 3600
    (cost,) = conditions(history, own_home)
    assert cost.what == "'mine' has used $16.10 of $20.00; at the limit its machines end"
    history.clock.at += 6.5 * 3600
    assert [one.cause.rpartition(", ")[2] for one in conditions(history, own_home)] == ["max_cost 20", "max_hours 10"]
    history.store.set_limits(cluster, {"max_cost": 200.0})
    assert conditions(history, own_home) == ()


def test_a_budget_is_reported_when_it_is_nearly_spent_and_when_it_is_spent_once_each(
    history: History, own_home: Path
) -> None:
    history.store.set_budget(SpendingBudget(project="", member="", dollars_per_month=100.0, at_limit="stop"))
    cluster = history.cluster()
    history.slice(cluster, 1, IntentState.ACCEPTED)
    billed = history.store.intents(cluster)[0]
    price = billed.candidate.price_per_hour
    assert price and billed.billed_from is not None
    found: list[str] = []
    with Reader(own_home / "state" / "orch.db") as reader:
        for dollars in (79.0, 81.0, 90.0, 101.0, 150.0):
            now = billed.billed_from + dollars / price * 3600
            present = read_budget_conditions(reader, LIMITS.near, now)
            found += [one.what for one in present if history.store.record_condition("", one.what, one.cause)]
        notices, _ = read_notices(reader, 0)
    assert [text.partition(" (")[0] for text in found] == [
        "the budget of everything is nearly spent; at the limit its runs end",
        "the budget of everything is spent: its runs end",
    ]
    reported = [one for one in notices if one.kind is Kind.BUDGET]
    assert [one.title for one in reported] == found and reported[0].cluster == ""


def _run_with_faults(*, silent: float, blind: float) -> list[tuple[Kind, str]]:
    """Run a job whose hosts and whose provider do not answer for a while, and return what people are notified of.

    Args:
        silent: Seconds for which no host answers, from 20 s after the slice is ready.
        blind: Seconds for which the provider does not, from 100 s.
    """
    happenings = tuple(
        Happening(do=Deed.SILENCE_HOST, after_ready=20.0, seconds=silent, rank=rank) for rank in (0, 1) if silent
    )
    fault = Fault(call="get", kind=FaultKind.UNAVAILABLE, rate=1.0, begin=100.0, end=100.0 + blind)
    durations = Durations(create=4.0, end=2.0, jitter=0.0)
    scenario = Scenario(happenings=happenings, faults=(fault,) if blind else (), durations=durations)
    home = SimHome(InMemory(scenario, ManualClock()))
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=330.0))
    assert home.drive(sim_launch(sim_task())).status == 0
    with open_reader() as reader:
        return [(one.kind, one.title) for one in read_notices(reader, 0)[0]]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORCH_HOME", "")
    use_home(tmp_path)


@pytest.mark.usefixtures("simulated")
def test_a_provider_that_is_silent_for_long_is_one_notice() -> None:
    found = _run_with_faults(silent=0, blind=200.0)
    assert [kind for kind, _ in found] == [Kind.SILENT, Kind.ENDED]
    assert "runs, and the provider simulated did not answer for" in found[0][1]


@pytest.mark.usefixtures("simulated")
def test_short_silences_are_none() -> None:
    assert [kind for kind, _ in _run_with_faults(silent=60.0, blind=100.0)] == [Kind.ENDED]


@pytest.mark.usefixtures("simulated")
def test_hosts_that_are_replaced_are_a_loss_and_no_silence() -> None:
    assert [kind for kind, _ in _run_with_faults(silent=300.0, blind=0)] == [Kind.LOST, Kind.ENDED]
