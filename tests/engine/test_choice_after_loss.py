"""Machines that orch chose are chosen again: after a loss, and with `grow: true` while a run has some."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.driving import Listener
from support.own_requests import record_requests
from support.simulated import SimHome, sim_candidate, sim_launch, sim_task, use_home

from orchestrator.catalog.accelerators import resolve
from orchestrator.engine.loop import wait
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation.commands import prepare_down
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.state.recorded import open_reader
from orchestrator.exits import Exit
from orchestrator.offers.estimates import Estimate
from orchestrator.offers.offers import Offer, OfferTerms, make_offer
from orchestrator.paths import load_paths
from orchestrator.plan.actions import Action, CreateSlice, StartJob
from orchestrator.plan.desired import AutomaticChoice, Run, Variant
from orchestrator.plan.steps import GiveUp
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Pool, Scenario
from orchestrator.slices import OnDemand, Spot
from orchestrator.task.model import Checkpoint, Recovery
from orchestrator.task.model import Limits as TaskLimits
from orchestrator.values import Text

HOUR, STEPS = 3600.0, 10_000


def offer(machine: str, hours: float, price: float, *, spot: bool = True) -> Offer:
    """Return an offer whose steps take so many hours, a little more or less."""
    step = Estimate.between(0.9 * hours * HOUR / STEPS, 1.1 * hours * HOUR / STEPS)
    terms = OfferTerms(
        machine=resolve(machine),
        nodes=1,
        market=Spot() if spot else OnDemand(),
        price_per_hour=(price, price),
        price_note="",
        settings=(),
        steps=STEPS,
        step_seconds=step,
        speed_source="",
    )
    made = make_offer(terms)
    assert made is not None
    return made


SLOW, FAST, FIRM = offer("v6e-1", 20, 10), offer("v6e-4", 5, 50), offer("v6e-1", 20, 30, spot=False)


def save_checkpoint(runs: Path, run_id: str, step: int) -> None:
    folder = runs / run_id / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    about = {"format": 1, "step": step, "run_id": run_id, "attempt": 1, "world": 1, "time": "2026-11-20T18:30:00Z"}
    name = "part-00000-of-00001.safetensors"
    part = {"name": name, "size": 4, "sha256": hashlib.sha256(b"part").hexdigest()}
    (folder / name).write_bytes(b"part")
    (folder / "manifest.json").write_text(json.dumps(about | {"parts": [part], "data": {}, "config": {}}))


class Home(SimHome):
    def run(self, ready: PreparedCommand, listener: Listener) -> CommandResult:
        return drive_cluster(ready, listener, services=self.services())


class Preempting(Listener):
    """Takes the machines after some hours, as often as there are hours in the list."""

    def __init__(self, home: Home, *hours: float, saved: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._home, self._hours, self._saved = home, list(hours), saved

    def starting(self, action: Action) -> None:
        super().starting(action)
        if isinstance(action, StartJob) and self._hours:
            self._home.pass_time(self._hours.pop(0) * HOUR)
            self._saved()
            with self._home.access.open() as cloud:
                cloud.do(cloud.live()[0].name, Deed.PREEMPT)

    @property
    def machines(self) -> list[str]:
        return [one.spec.candidate.accelerator for one in self.actions if isinstance(one, CreateSlice)]

    @property
    def programs(self) -> list[str]:
        return [one.script.preview() for one in self.actions if isinstance(one, StartJob)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)
    durations = Durations(create=0.4, end=0.3, stop=0.3, start=0.3, contact=0.01, jitter=0.0)
    pools = tuple(
        Pool(zone="sim-a", accelerator=name, amount=8) for name in ("v6e-1 spot", "v6e-4 spot", "v6e-1 on demand")
    )
    made = Home(InMemory(Scenario(durations=durations, pools=pools), ManualClock()))
    with made.access.open() as cloud:
        cloud.set_program("*", Program(seconds=25.0))
    return made


def launch(
    *offers: Offer, later: tuple[Offer, ...] = (), budget: float | None = None, by: str = "", **task: Any
) -> Any:
    """Return a launch whose candidates are those of the offers; `later` only after a loss."""
    ready = sim_launch(sim_task(recovery=Recovery(max_preemptions=5), **task), cluster="c")
    run = ready.desired
    assert isinstance(run, Run) and run.job is not None
    variants: list[Variant] = []
    for one in (*offers, *later):
        place = sim_candidate(market=one.market, price_per_hour=one.price_per_hour[1])
        place = replace(place, accelerator=f"{one.machine.name} {one.market}")
        variants.append(
            Variant(
                candidates=(place,), setup=None, mounts=(), job=replace(run.job, script=Text.of(f"for {one.name}")),
                accelerator=place.accelerator, num_slices=1, env=run.env, timer=None, offer=one,
            )
        )  # fmt: skip
    first = tuple(place for one in variants[: len(offers)] for place in one.candidates)
    choice = AutomaticChoice(budget=budget, by=by)
    desired = replace(run, candidates=first, variants=tuple(variants), automatic=choice)
    return replace(ready, desired=desired.adapt(first[0]))


def events() -> list[str]:
    with open_reader() as reader:
        return [one.what for one in reader.events("c") if one.kind == "choice"]


def test_the_cheapest_machines_are_taken_again_while_there_is_time(home: Home) -> None:
    listener = Preempting(home, 2.0)
    assert home.run(launch(SLOW, FAST, budget=900, by="5d"), listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot", "v6e-1 spot"]
    assert len(events()) == 1


def test_faster_machines_are_taken_when_the_cheapest_would_be_late(home: Home) -> None:
    """20 of 30 hours are gone, and without a bucket all of the work is left: only the faster machines keep the date."""
    listener = Preempting(home, 20.0)
    assert home.run(launch(SLOW, FAST, budget=900, by="30h"), listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot", "v6e-4 spot"]
    assert listener.programs == ["for v6e-1", "for v6e-4"], "each with its own settings"
    (said,) = events()
    assert said.startswith("attempt 2: 100 % of the work, $7") and "9 h 5" in said and "v6e-4, spot" in said


def test_machines_too_dear_for_the_whole_run_finish_the_rest(home: Home, tmp_path: Path) -> None:
    def save() -> None:
        with open_reader() as reader:
            job = reader.last_run_of("c")
        assert job is not None
        save_checkpoint(tmp_path / "runs", job.run_id, step=9_000)

    listener = Preempting(home, 20.0, saved=save)
    ready = launch(SLOW, later=(FAST,), budget=300, by="22h", checkpoint=Checkpoint(bucket=f"file://{tmp_path}/runs"))
    assert FAST.dollars.high > 250
    assert home.run(ready, listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot", "v6e-4 spot"]
    assert events()[0].startswith("attempt 2: 10 % of the work, $")


def test_a_date_that_cannot_be_kept_is_said_and_the_cheapest_goes_on(home: Home) -> None:
    listener = Preempting(home, 27.0)
    assert home.run(launch(SLOW, FAST, budget=900, by="30h"), listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot", "v6e-1 spot"]
    assert "the date cannot be kept, so the cheapest is first" in events()[0]


def test_a_rest_that_the_budget_cannot_pay_is_not_begun(home: Home) -> None:
    listener = Preempting(home, 20.0)
    done = home.run(launch(SLOW, FAST, budget=280), listener)
    assert isinstance(done.step, GiveUp)
    assert (done.step.status, done.step.code) == (Exit.BUDGET, "budget")
    assert done.step.what == "the budget of 'c' does not suffice for the rest"
    assert "it would cost more on any of the machines" in done.step.why
    assert listener.machines == ["v6e-1 spot"]
    with home.access.open() as cloud:
        assert not cloud.live()


@pytest.mark.parametrize("fails", ["once", "always"])
def test_a_bucket_that_fails_after_a_loss_does_not_end_a_run_whose_rest_is_affordable(
    home: Home, tmp_path: Path, fails: str
) -> None:
    runs = tmp_path / "runs"
    folders: list[Path] = []

    def save() -> None:
        with open_reader() as reader:
            job = reader.last_run_of("c")
        assert job is not None
        save_checkpoint(runs, job.run_id, step=9_000)
        folder = runs / job.run_id / "checkpoints"
        folder.rename(runs / "kept")
        folder.symlink_to(folder)  # reading it fails with ELOOP
        folders.append(folder)

    class Repairing(Preempting):
        def starting(self, action: Action) -> None:
            super().starting(action)
            if not isinstance(action, CreateSlice) or not folders:
                return
            with home.access.open() as cloud:
                cloud.state.capacity["sim-a/v6e-1 spot/*"] = 0 if len(self.machines) == 2 else 8
            if fails == "once" and folders[0].is_symlink():
                folders[0].unlink()
                (runs / "kept").rename(folders[0])

    listener = Repairing(home, 20.0, saved=save)
    ready = launch(SLOW, budget=280, checkpoint=Checkpoint(bucket=f"file://{runs}"))
    assert home.run(ready, listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot"] * 3, "the second request finds no capacity"
    assert [one.partition(", ")[0] for one in events()] == (
        ["attempt 2: 10 % of the work"] if fails == "once" else []
    ), "nothing is concluded from a step that is unknown"


def test_machines_on_demand_wait_until_spot_ones_could_be_late(home: Home) -> None:
    """Spot capacity is gone: as long as there is time orch waits for it, then it pays for machines that stay."""
    ready = launch(SLOW, FIRM, budget=2000, by="26h")

    class Drought(Preempting):
        def starting(self, action: Action) -> None:
            super().starting(action)
            if isinstance(action, CreateSlice) and len(self.machines) == 2:
                with home.access.open() as cloud:
                    cloud.state.capacity["sim-a/v6e-1 spot/*"] = 0
            if isinstance(action, CreateSlice) and len(self.machines) == 3:
                home.pass_time(2.0 * HOUR)

    listener = Drought(home, 1.0)
    assert home.run(ready, listener).step.status == Exit.OK
    assert listener.machines == ["v6e-1 spot"] * 3 + ["v6e-1 on demand"]
    waiting, paying = events()
    assert "24 h 59 min left: v6e-1, spot" in waiting
    assert "22 h 59 min left: v6e-1, on demand" in paying


def test_the_largest_size_that_is_there_is_taken_and_sought_first_after_a_loss(home: Home) -> None:
    """A range of nodes: the sizes in their order, each with its own program."""
    with home.access.open() as cloud:
        cloud.state.capacity["sim-a/v6e-4 spot/*"] = 0

    class Returning(Preempting):
        def starting(self, action: Action) -> None:
            super().starting(action)
            if isinstance(action, StartJob):
                with home.access.open() as cloud:
                    cloud.state.capacity["sim-a/v6e-4 spot/*"] = 8

    ready = launch(FAST, SLOW)
    large, small = ready.desired.variants
    small = replace(small, candidates=(*small.candidates, replace(small.candidates[0], zone="sim-b")))
    places = (*large.candidates, *small.candidates)
    sizes = replace(ready.desired, automatic=None, candidates=places, variants=(large, small))
    listener = Returning(home, 2.0)
    assert home.run(replace(ready, desired=sizes), listener).step.status == Exit.OK
    assert listener.machines == ["v6e-4 spot", "v6e-1 spot", "v6e-4 spot"]
    assert listener.programs == ["for v6e-1", "for v6e-4"]
    assert events() == []


@pytest.mark.parametrize("limit", ["the choice", "limits.max_cost"])
def test_a_budget_is_of_all_resumes_of_a_run_on_whatever_clusters(home: Home, tmp_path: Path, limit: str) -> None:
    """SLOW costs $10 an hour: 20 hours leave too little of $280, and nothing of $200."""
    task: dict[str, Any] = {"checkpoint": Checkpoint(bucket=f"file://{tmp_path}/runs")}
    if limit == "limits.max_cost":
        task["limits"] = TaskLimits(max_cost=200)

    def resume(run_id: str) -> PreparedCommand:
        ready = launch(SLOW, budget=280 if limit == "the choice" else None, **task)
        new = replace(ready.job, kind="resume", run_id=run_id, first_attempt=3, digest="other")
        return replace(ready, job=new)

    first = Preempting(home, 20.0)
    home.run(launch(SLOW, budget=280 if limit == "the choice" else None, **task), first)
    with open_reader() as reader:
        job = reader.last_run_of("c")
    assert job is not None and first.machines == ["v6e-1 spot"]
    home.run(prepare_down("c"), Listener())
    again = Listener()
    ending = home.run(resume(job.run_id), again).step
    assert isinstance(ending, GiveUp)
    assert ending.status == (Exit.BUDGET if limit == "the choice" else Exit.TIMEOUT)
    assert "CreateSlice" not in again.steps


class Killed(BaseException):
    """The end of the engine's process."""


class Growing(Listener):
    """Gives large machines back when the program starts, and may kill the engine before one of its actions."""

    def __init__(self, home: Home, runs: Path, *, capacity: int = 8, kill_at: int = -1) -> None:
        super().__init__()
        self._home, self._runs, self._capacity, self._kill_at = home, runs, capacity, kill_at

    def starting(self, action: Action) -> None:
        if len(self.actions) == self._kill_at:
            self._kill_at = -1
            raise Killed
        super().starting(action)
        if isinstance(action, StartJob) and self._capacity >= 0:
            with self._home.access.open() as cloud:
                cloud.state.capacity["sim-a/v6e-4 spot/*"] = self._capacity
            with open_reader() as reader:
                job = reader.last_run_of("c")
            if job is not None and not (self._runs / job.run_id / "checkpoints").exists():
                save_checkpoint(self._runs, job.run_id, step=100)

    @property
    def created(self) -> list[str]:
        return [one.spec.candidate.accelerator for one in self.actions if isinstance(one, CreateSlice)]


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine look at a program every ten minutes: hours of it are many looks."""
    monkeypatch.setattr(wait, "LOOK_EVERY", 600.0)


def launch_growing(
    home: Home, runs: Path, *, grow: bool = True, got: int = 9, refused: int = 0, project: str = DEFAULT_PROJECT
) -> PreparedCommand:
    """Return a launch of a range of sizes whose larger one is not there at first, of a program that takes 90 min."""
    with home.access.open() as cloud:
        cloud.state.capacity["sim-a/v6e-4 spot/*"] = 0
        cloud.set_program("*", Program(seconds=1.5 * HOUR))
    ready = launch(FAST, SLOW, checkpoint=Checkpoint(bucket=f"file://{runs}"))
    record_requests(load_paths().database, home.access.clock.now, ready.desired.candidates[0], got, refused, project)
    return replace(ready, desired=replace(ready.desired, automatic=None, grow=grow))


def ends() -> list[tuple[str, str]]:
    with open_reader() as reader:
        cluster = reader.cluster("c")
        assert cluster is not None
        return [(str(one.cause), one.why) for one in reader.ended_attempts(cluster, 1)]


@pytest.mark.usefixtures("rare_looks")
def test_a_run_moves_to_the_larger_machines_that_the_records_say_are_there(home: Home, tmp_path: Path) -> None:
    listener = Growing(home, runs := tmp_path / "runs")
    assert home.run(launch_growing(home, runs), listener).step.status == Exit.OK
    assert listener.created == ["v6e-4 spot", "v6e-1 spot", "v6e-4 spot"]
    kinds = [one for one in listener.steps if one in ("StartJob", "EndAttempt", "StopJob", "NextAttempt", "EndSlice")]
    assert kinds == ["StartJob", "EndAttempt", "StopJob", "NextAttempt", "EndSlice", "StartJob"]
    ((cause, why),) = ends()
    assert (
        cause == "grown" and why.startswith("v6e-4, spot: about 5 h ") and "on v6e-1; machines within an hour: 8" in why
    )


@pytest.mark.parametrize("case", ["off", "refused often", "few requests", "another project"])
@pytest.mark.usefixtures("rare_looks")
def test_a_run_stays_where_it_may_not_move_or_the_records_do_not_say_enough(
    home: Home, tmp_path: Path, case: str
) -> None:
    ready = launch_growing(
        home, tmp_path / "runs", grow=case != "off", got=3 if case == "few requests" else 9,
        refused=6 if case == "refused often" else 0, project="audio" if case == "another project" else DEFAULT_PROJECT,
    )  # fmt: skip
    listener = Growing(home, tmp_path / "runs")
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=0.9 * HOUR))
    assert home.run(ready, listener).step.status == Exit.OK
    assert listener.created == ["v6e-4 spot", "v6e-1 spot"] and ends() == []


@pytest.mark.usefixtures("rare_looks")
def test_a_run_that_finds_no_larger_machines_has_the_same_again_and_does_not_flap(home: Home, tmp_path: Path) -> None:
    listener = Growing(home, runs := tmp_path / "runs", capacity=0)
    assert home.run(launch_growing(home, runs, got=20), listener).step.status == Exit.OK
    assert listener.created == ["v6e-4 spot", "v6e-1 spot"] * 2
    assert [cause for cause, _ in ends()] == ["grown"]


@pytest.mark.slow
@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("at", range(3, 11))
def test_an_engine_that_is_killed_while_a_run_moves_leaves_one_slice_and_finishes_the_move(
    home: Home, tmp_path: Path, at: int
) -> None:
    ready = launch_growing(home, runs := tmp_path / "runs")
    listener = Growing(home, runs, kill_at=at)
    with pytest.raises(Killed):
        home.run(ready, listener)
    with home.access.open() as cloud:
        assert len(cloud.live()) <= 1
    assert home.run(ready, listener).step.status == Exit.OK
    assert [cause for cause, _ in ends()] == ["grown"]
    assert listener.created[-1] == "v6e-4 spot" and listener.created.count("v6e-1 spot") == 1
    with home.access.open() as cloud:
        assert [look.accelerator for look in cloud.live()] == ["v6e-4 spot"]
