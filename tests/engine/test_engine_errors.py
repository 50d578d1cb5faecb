"""Each error of the cloud: its message, whether it is retried, and that nothing is made twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from crash_verbs import close_record
from support.driving import Listener
from support.simulated import PointedProvider, Points, SimHome, sim_candidate, sim_launch, sim_task, use_home
from support.slice_names import slice_name

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.operations import sweep
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import CloudError
from orchestrator.exits import Exit
from orchestrator.hosts import HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.actions import Action
from orchestrator.plan.desired import Limits, Run
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.simulator.access import Access, InMemory
from orchestrator.simulator.calls import CreateCall
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Quota, Scenario
from orchestrator.slices import SliceView

EVEN = Durations(create=4.0, end=2.0, jitter=0.0)
Make = Callable[..., SimHome]
KEPT = ("resources", "names", "tokens")  # what a call may change


class Killed(BaseException):
    pass


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes a simulated home with these fields of Scenario."""
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
    """Return when each create request was sent."""
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
    home = make(faults=(Fault(call="create", kind=kind, nth=(1,)),))
    ending = home.drive(sim_launch(sim_task()))
    assert (ending.status, getattr(ending.step, "code", "")) == (status, code), ending
    assert len(creates(home)) == sent
    assert getattr(ending.step, "next_step", "a good end needs none")
    assert len(cloud_of(home).live()) == (status == Exit.OK)


class Log(Listener):
    """What the engine reports, in order, and whether the slice was ready at that moment."""

    def __init__(self, home: SimHome) -> None:
        super().__init__()
        self.home = home
        self.lines: list[tuple[str, bool]] = []

    def finished(self, action: Action, seconds: float) -> None:
        self._add(f"finished {type(action).__name__}")

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        self._add(f"failed {type(action).__name__}")

    def note(self, words: str) -> None:
        self._add(words)

    def _add(self, line: str) -> None:
        ready = [one.name for one in cloud_of(self.home).live() if one.phase.value == "ready"]
        self.lines.append((line, bool(ready)))


class Unclear(PointedProvider):
    """Answers the first observation with a page."""

    def __init__(self, access: Access, points: Points, page: str) -> None:
        super().__init__(access, points)
        self.page = page

    def observe(self, name: str, token: str = "") -> SliceView:
        page, self.page = self.page, ""
        if page:
            raise CloudError(f"cannot observe {name}", page)
        return super().observe(name, token)


def test_a_slice_is_reported_as_created_only_when_its_provider_reports_it(make: Make) -> None:
    home = make()
    log = Log(home)
    drive_cluster(sim_launch(sim_task()), log, services=home.services())
    created = [ready for line, ready in log.lines if "is created" in line]
    assert created == [True], log.lines
    assert ("finished CreateSlice", False) in log.lines, "the request was accepted before the slice was ready"


def test_a_refused_create_is_not_reported_as_finished(make: Make) -> None:
    home = make(faults=(Fault(call="create", kind=FaultKind.NO_CAPACITY, rate=1.0),))
    log = Log(home)
    drive_cluster(sim_launch(sim_task()), log, services=home.services())
    lines = [line for line, _ in log.lines]
    assert "failed CreateSlice" in lines
    assert not any("finished CreateSlice" in line or "is created" in line for line in lines), lines


def test_an_html_answer_of_a_provider_is_one_line(make: Make) -> None:
    page = "502: <!DOCTYPE html>\n<html><title>Error 502</title>\n<style>p {}</style>\n<p>try again\n"
    home = make()
    log = Log(home)
    waits: list[str] = []
    log.waiting = lambda wait, seconds: waits.append(wait.reason)  # type: ignore[method-assign]  # kept for the test
    provider = Unclear(home.access, home.points, page)
    drive_cluster(sim_launch(sim_task()), log, services=replace(home.services(), provider=lambda _: provider))
    unclear = [reason for reason in waits if "unclear" in reason]
    assert unclear == [f"'c' is unclear (cannot observe {slice_name('c')}: 502: Error 502 try again)"], waits


@pytest.mark.promise("P22")
def test_a_quota_error_is_not_a_stockout_and_is_not_retried(make: Make) -> None:
    home = make(quotas=(Quota(region="sim", accelerator="v5e", amount=1),))
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status == Exit.CAPACITY
    assert "quota" in str(ending.step)
    assert len(creates(home)) == 1


@pytest.mark.promise("P23")
@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER])
def test_a_cloud_that_never_answers_gets_few_requests_and_nothing_is_left(make: Make, kind: FaultKind) -> None:
    home = make(faults=(Fault(call="create", kind=kind, rate=1.0),))
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


@pytest.mark.promise("P2")
@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.NO_CAPACITY])
def test_a_refusal_after_an_unanswered_create_does_not_prove_that_nothing_was_made(make: Make, kind: FaultKind) -> None:
    home = make(
        faults=(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)), Fault(call="create", kind=kind, nth=(2,)))
    )
    home.drive(sim_launch(sim_task()))
    with open_reader() as reader:
        open_ones = {str(row["token"]) for row in reader.rows("intents") if row["state"] not in ("gone", "refused")}
    living = {one.labels["orch-intent"] for one in cloud_of(home).live()}
    assert living == open_ones


def unclear_then_denied(*also: str) -> tuple[Fault, ...]:
    """A create whose answer is lost, then a refused one; `also` names the calls that are refused at any time."""
    denied = FaultKind.DENIED
    return (
        Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),
        Fault(call="create", kind=denied, nth=(2,)),
        *(Fault(call=call, kind=denied, rate=1.0) for call in also),
    )


def test_a_refusal_after_an_unclear_create_is_the_cause_that_the_command_ends_with(make: Make) -> None:
    home = make(faults=unclear_then_denied())
    log = Log(home)
    step = drive_cluster(sim_launch(sim_task()), log, services=home.services()).step
    assert (getattr(step, "code", ""), getattr(step, "status", 0)) == ("permission", Exit.PERMISSION)
    assert any("you are not allowed" in line for line, _ in log.lines), "it is reported before the machines are ended"
    assert cloud_of(home).live() == ()


def test_a_refusal_is_not_hidden_while_the_slice_cannot_be_observed(make: Make) -> None:
    home = make(faults=unclear_then_denied("get", "list"))
    began = cloud_of(home).clock.now()
    ending = home.drive(sim_launch(sim_task()))
    assert (getattr(ending.step, "code", ""), ending.status) == ("permission", Exit.PERMISSION)
    assert "orch down c" in str(getattr(ending.step, "next_step", ""))
    assert cloud_of(home).clock.now() - began < 400, "the deadline of an end would be 15 minutes"


@pytest.mark.promise("P5")
def test_the_sweep_repeats_a_stuck_end_request(make: Make) -> None:
    home = make(faults=(Fault(call="end", kind=FaultKind.STUCK, nth=(1,)),))
    assert _sweep_one_orphan(home).problem is None
    assert cloud_of(home).live() == ()


@pytest.mark.promise("P3")
def test_a_second_listing_that_fails_does_not_count_as_the_end_of_an_orphan(make: Make) -> None:
    home = make(faults=(Fault(call="list", kind=FaultKind.UNAVAILABLE, nth=(2,)),))
    assert _sweep_one_orphan(home).problem is not None
    assert [look.name for look in cloud_of(home).live()] == ["lost-1"]


def _sweep_one_orphan(home: SimHome) -> sweep.ReapResult:
    """Make a slice whose record is closed, and sweep."""
    world = home.services()
    with open_store(load_paths(), world) as store:
        labels = {"orch-installation": store.installation, "orch-cluster": "lost", "orch-intent": "token-lost-1"}
        cloud_of(home).create(
            CreateCall(
                name="lost-1", zone="sim-a", accelerator="v5e", hosts=2, token="t", chips_per_host=4, labels=labels
            )
        )
        close_record(home, "lost-1")
        home.pass_time(10.0)
        found = sweep.judge_owned_slices(store, world, ["simulated"])
        (done,) = sweep.end_orphans(store, world, Listener(), found)
    return done


@pytest.mark.promise("P11")
def test_a_plan_of_each_command_sends_no_changing_request(make: Make) -> None:
    home = make()
    home.drive(sim_launch(sim_task(setup="true")))
    access = home.access
    assert isinstance(access, InMemory)
    before = access.cloud.state.to_json()
    locked = replace(access.cloud.scenario, read_only=True)
    access.cloud = SimulatedCloud(locked, access.clock, access.cloud.state)
    for ready in (sim_launch(sim_task(setup="true")), sim_launch(sim_task(), cluster="d"), commands.prepare_down("c"),
                  commands.prepare_stop("c")):  # fmt: skip
        assert make_plan(ready.desired, ready.recorded, ready.facts).steps
    with open_store(load_paths(), home.services()) as store:
        (found,) = sweep.judge_owned_slices(store, home.services(), ["simulated"])
    assert found.problem is None
    after = access.cloud.state.to_json()
    assert {key: after[key] for key in KEPT} == {key: before[key] for key in KEPT}
    assert all(call.result != "read-only" for call in access.cloud.calls())


def limited(limits: Limits, price: float = 36.0) -> PreparedCommand:
    """price: 36 dollars an hour are a cent a second."""
    ready = sim_launch(sim_task(), sim_candidate(price_per_hour=price))
    assert isinstance(ready.desired, Run)
    return replace(ready, desired=replace(ready.desired, limits=limits))


LIMITS = [Limits(dollars=1.0), Limits(hours=100 / 3600)]  # both: 100 s
ONE_LOOK = 10.0 + 5.0  # between two looks while the program runs, and the calls themselves


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limits", LIMITS)
def test_a_run_stops_at_its_cost_limit_within_one_observation(make: Make, limits: Limits) -> None:
    home = make()
    cloud_of(home).set_program("*", Program(seconds=None))
    ending = home.drive(limited(limits))
    assert ending.status == Exit.TIMEOUT, ending
    assert cloud_of(home).live() == ()
    assert _lifetime() <= 100.0 + ONE_LOOK


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("deadly", range(10, 70, 6))
def test_a_run_whose_orch_was_killed_ends_at_the_first_observation_after_the_limit(
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
    with sqlite3.connect(load_paths().database) as connection:
        connection.execute("UPDATE leases SET owner = '', expires = 0")


@pytest.mark.promise("P5")
def test_a_name_of_another_owner_leaves_no_open_record_that_a_down_would_end(make: Make) -> None:
    home = make()
    cloud_of(home).seed_foreign(slice_name("c"), {"orch-installation": "theirs"})
    ending = home.drive(sim_launch(sim_task()))
    assert ending.status == Exit.USAGE
    with open_store(load_paths(), home.services()) as store:
        assert store.cluster("c") is None, "the record stays open"
        assert [intent.state in FINAL_STATES for _, intent in store.all_intents()] == [True]
    assert not cloud_of(home).calls("end")
