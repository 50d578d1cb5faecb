"""Each error of the cloud: what the user is told, whether it is tried again, and that nothing is made twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from support.driving import Listener
from support.proof import report
from support.simulated import Points, SimHome, sim_candidate, sim_launch, sim_task, use_home

from orchestrator.engine import prepare, sweep
from orchestrator.engine.known import open_reader
from orchestrator.engine.opening import open_store
from orchestrator.engine.ready import Ready
from orchestrator.exits import Exit
from orchestrator.paths import paths
from orchestrator.plan.desired import Limits, Run
from orchestrator.plan.imagined import make_plan
from orchestrator.plan.observed import FINAL
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.calls import CreateCall
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Quota, Scenario

EVEN = Durations(create=4.0, end=2.0, jitter=0.0)
Make = Callable[..., SimHome]
KEPT = ("resources", "names", "tokens")  # what a call may change


class Killed(BaseException):
    pass


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A simulated world with these fields of Scenario."""
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)

    def made(**fields: object) -> SimHome:
        scenario = Scenario(**{"durations": EVEN, **fields})  # type: ignore[arg-type]  # fields of Scenario
        return SimHome(InMemory(scenario, ManualClock()))

    return made


def cloud_of(home: SimHome):  # type: ignore[no-untyped-def]  # the cloud of a world that lives in memory
    assert isinstance(home.access, InMemory)
    return home.access.cloud


def creates(home: SimHome) -> list[float]:
    """When each create was sent."""
    return [call.at for call in cloud_of(home).calls("create")]


TABLE = [
    # fault of the first create, exit status, code, creates that were sent
    (FaultKind.THROTTLED, Exit.OK, "", 2),
    (FaultKind.INTERNAL, Exit.OK, "", 2),
    (FaultKind.UNAVAILABLE, Exit.OK, "", 2),
    (FaultKind.TIMEOUT_BEFORE, Exit.OK, "", 2),
    (FaultKind.TIMEOUT_AFTER, Exit.OK, "", 2),
    (FaultKind.DENIED, Exit.PERMISSION, "permission", 1),
    (FaultKind.NO_CAPACITY, Exit.CAPACITY, "capacity", 1),
]


@pytest.mark.promise("P22")
@pytest.mark.parametrize(("kind", "status", "code", "sent"), TABLE)
def test_each_error_of_a_create_has_its_status_and_its_answer(
    make: Make, kind: FaultKind, status: int, code: str, sent: int
) -> None:
    home = make(faults=(Fault("create", kind, nth=(1,)),))
    ending = home.drive(sim_launch(sim_task()))
    assert (ending.status, getattr(ending.step, "code", "")) == (status, code), ending
    assert len(creates(home)) == sent
    assert getattr(ending.step, "next_step", "a good end needs none")
    assert len(cloud_of(home).live()) == (status == Exit.OK)


@pytest.mark.promise("P22")
def test_a_quota_is_told_apart_from_a_lack_of_machines_and_not_asked_again(make: Make) -> None:
    home = make(quotas=(Quota("sim", "v5e", 1),))
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status == Exit.CAPACITY
    assert "quota" in str(ending.step)
    assert len(creates(home)) == 1


@pytest.mark.promise("P23")
@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER])
def test_a_cloud_that_answers_nothing_is_asked_only_so_often_and_leaves_nothing(make: Make, kind: FaultKind) -> None:
    home = make(faults=(Fault("create", kind, rate=1.0),))
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status != Exit.OK
    sent = creates(home)
    assert 1 < len(sent) <= 6, sent
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert all(gap >= 0.75 for gap in gaps), gaps
    assert gaps == sorted(gaps), "each pause is longer than the one before"
    assert cloud_of(home).live() == ()
    made = [one.labels["orch-intent"] for one in cloud_of(home).made()]
    assert len(made) == len(set(made)), "a repeated create made a second slice"
    report(f"retries of a create that ends in {kind}: {len(sent)}, after {[round(at - sent[0], 1) for at in sent]} s")


@pytest.mark.promise("P2")
@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.NO_CAPACITY])
def test_a_refusal_after_a_create_that_may_have_acted_is_no_proof_that_nothing_lives(
    make: Make, kind: FaultKind
) -> None:
    home = make(faults=(Fault("create", FaultKind.TIMEOUT_AFTER, nth=(1,)), Fault("create", kind, nth=(2,))))
    home.drive(sim_launch(sim_task()))
    with open_reader() as reader:
        open_ones = {str(row["token"]) for row in reader.rows("intents") if row["state"] not in ("gone", "refused")}
    living = {one.labels["orch-intent"] for one in cloud_of(home).live()}
    assert living == open_ones


@pytest.mark.promise("P5")
def test_the_sweep_asks_again_for_an_end_that_is_stuck(make: Make) -> None:
    home = make(faults=(Fault("end", FaultKind.STUCK, nth=(1,)),))
    world = home.world()
    with open_store(paths(), world) as store:
        labels = {"orch-installation": store.installation, "orch-cluster": "lost", "orch-intent": "t"}
        cloud_of(home).create(CreateCall("lost-1", "sim-a", "v5e", 2, "t", 4, labels=labels))
        home.pass_time(10.0)
        found = sweep.look(store, world, ["simulated"], grace=0.0)
        (done,) = sweep.reap(store, world, Listener(), found, grace=0.0)
    assert done.problem is None
    assert cloud_of(home).live() == ()


@pytest.mark.promise("P11")
def test_a_plan_of_each_verb_makes_no_call_that_changes_anything(make: Make) -> None:
    home = make()
    home.drive(sim_launch(sim_task(setup="true")))
    access = home.access
    assert isinstance(access, InMemory)
    before = access.cloud.state.to_json()
    locked = replace(access.cloud.scenario, read_only=True)
    access.cloud = SimulatedCloud(locked, access.clock, access.cloud.state)
    for ready in (sim_launch(sim_task(setup="true")), sim_launch(sim_task(), cluster="d"), prepare.down("c"),
                  prepare.stop("c")):  # fmt: skip
        assert make_plan(ready.desired, ready.known, ready.facts).steps
    with open_store(paths(), home.world()) as store:
        (found,) = sweep.look(store, home.world(), ["simulated"])
    assert found.problem is None
    after = access.cloud.state.to_json()
    assert {key: after[key] for key in KEPT} == {key: before[key] for key in KEPT}
    assert all(call.result != "read-only" for call in access.cloud.calls())


def limited(limits: Limits, price: float = 36.0) -> Ready:
    """price: 36 dollars an hour are a cent a second."""
    ready = sim_launch(sim_task(), sim_candidate(price_per_hour=price))
    assert isinstance(ready.desired, Run)
    return replace(ready, desired=replace(ready.desired, limits=limits))


LIMITS = [Limits(dollars=1.0), Limits(hours=100 / 3600)]  # both: 100 s
ONE_LOOK = 10.0 + 5.0  # between two looks while the program runs, and the calls themselves


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limits", LIMITS)
def test_a_run_stops_at_its_cap_within_one_look(make: Make, limits: Limits) -> None:
    home = make()
    cloud_of(home).set_program("*", Program(seconds=None))
    ending = home.drive(limited(limits))
    assert ending.status == Exit.TIMEOUT, ending
    assert cloud_of(home).live() == ()
    assert _lifetime() <= 100.0 + ONE_LOOK


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("deadly", range(10, 70, 6))
def test_a_run_whose_orch_was_killed_ends_at_the_first_look_after_the_cap(
    make: Make, limits: Limits, deadly: int
) -> None:
    home = make()
    cloud_of(home).set_program("*", Program(seconds=None))

    def strike(name: str) -> None:
        raise Killed(name)

    try:
        SimHome(home.access, Points(strike, deadly)).drive(limited(limits))
    except Killed:
        _forget_the_dead()
    home.pass_time(1000.0)
    began = home.clock.now()
    home.drive(limited(limits))
    assert cloud_of(home).live() == ()
    assert home.clock.now() - began <= 100.0 + 2 * ONE_LOOK, "no more than what was left of the cap"


def _lifetime() -> float:
    """Seconds for which the slices of all clusters were paid for."""
    with open_reader() as reader:
        rows = reader.rows("intents")
    return sum(float(row["gone"]) - float(row["born"]) for row in rows if row["born"] is not None)


def _forget_the_dead() -> None:
    with sqlite3.connect(paths().database) as connection:
        connection.execute("UPDATE leases SET owner = '', expires = 0")


@pytest.mark.promise("P5")
def test_a_name_that_is_somebody_elses_leaves_no_open_record_that_a_down_would_end(make: Make) -> None:
    home = make()
    cloud_of(home).seed_foreign("c-1", {"orch-installation": "theirs"})
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status == Exit.USAGE
    with open_store(paths(), home.world()) as store:
        assert store.cluster("c") is None, "the record stays open"
        assert [intent.state in FINAL for _, intent in store.all_intents()] == [True]
    assert not cloud_of(home).calls("end")
