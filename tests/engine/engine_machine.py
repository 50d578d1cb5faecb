"""Random histories of the real engine: commands interrupted anywhere, in a cloud where anything goes wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import hypothesis.strategies as st
from crash_matrix import INTENT, intents_of, live_of
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.driving import Listener
from support.lanes import FULL
from support.simulated import Points, SimHome, sim_launch, sim_task, simulated, use_home

from orchestrator.engine.operations import sweep
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import OrchError
from orchestrator.paths import load_paths
from orchestrator.plan.causes import LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Down, Run, Start, Stop
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import START, ManualClock
from orchestrator.simulator.cloud import MUTATING, SimulatedCloud
from orchestrator.simulator.faults import can_befall
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Durations, Fault, FaultKind, Scenario, Zone
from orchestrator.store import integrity
from orchestrator.store.location import store_location
from orchestrator.task.model import Checkpoint, Recovery, Task

PREEMPTIONS, FAILURES = 2, 1
LONGEST = 6 * 3600.0  # simulated seconds that any one command may need
SHORT = Budgets(
    preemptions=PREEMPTIONS, failures=FAILURES, boot_deadline=60.0, contact_deadline=40.0, end_deadline=60.0,
    lost_deadline=20.0, silence_deadline=30.0, unclear_deadline=40.0, hang_deadline=30.0, backoff_cap=30.0,
    capacity_wait=120.0, capacity_wait_first=60.0,
)  # fmt: skip
CALLS = ("create", "get", "list", "end", "stop", "start", "host.look", "host.marks", "host.mark", "host.start",
         "host.script", "host.sync", "host.kill")  # fmt: skip
FAULTS = [(call, kind) for call in CALLS for kind in FaultKind if can_befall(kind, call)]
CHANGING = [kind for kind in FaultKind if can_befall(kind, "create") or can_befall(kind, "end")]
DEEDS = [deed for deed in Deed if deed is not Deed.CAPACITY]
COMMANDS = ("launch", "go_on", "resume", "down", "stop", "start", "reap")


class Crash(BaseException):
    """The simulated death of the process: no part of the engine may catch this."""


class Machine(RuleBasedStateMachine):
    """log: what was done and how it ended, for a failing history's reader.

    tokens: the cloud knows a create that is repeated, so that one intent has one slice ever; else one at a time.
    """

    honour_tokens = True
    tokens = True
    zones: ClassVar[tuple[Zone, ...]] = Scenario().zones
    counts: ClassVar[Counter[str]] = Counter()  # over all histories of a test: reset by it

    @initialize(lag=st.sampled_from([0.0, 3.0]), page=st.sampled_from([1, 50]), exits=st.sampled_from([0, 0, 3, 75]))
    def begin(self, lag: float, page: int, exits: int) -> None:
        memory = Path("/dev/shm")  # a separate folder is made in it
        self.root = Path(tempfile.mkdtemp(prefix="orch-machine-", dir=memory if os.access(memory, os.W_OK) else None))
        use_home(self.root)
        (self.root / "bucket").mkdir()
        self.clock = LimitedClock()
        quick = Durations(create=8.0, end=4.0, stop=4.0, start=4.0, reboot=5.0, detect=10.0, maintenance=15.0)
        scenario = Scenario(zones=self.zones, durations=quick, lag=lag, page=page, honour_tokens=self.honour_tokens)
        self.access = InMemory(scenario, self.clock)
        cloud = self.access.cloud
        cloud.set_program("*", Program(seconds=25.0, exits={"1/1": exits} if exits else {}))
        cloud.set_program("*setup*", Program(seconds=2.0))
        cloud.seed_foreign("theirs")
        cloud.seed_foreign("c-7", {"orch-installation": "another", "orch-cluster": "c", "orch-intent": "x"})
        self.log: list[str] = []
        Machine.counts["histories"] += 1

    def home(self, points: Points | None = None) -> SimHome:
        return SimHome(self.access, points or Points())

    # --- what happens -------------------------------------------------------------------------------------

    @rule(which=st.sampled_from(FAULTS), wait=st.integers(0, 3))
    def fault(self, which: tuple[str, FaultKind], wait: int) -> None:
        """The call after the next `wait` ones of this kind goes wrong."""
        call, kind = which
        state, old = self.access.cloud.state, self.access.cloud.scenario
        fault = Fault(call=call, kind=kind, nth=(state.counts.get(call, 0) + 1 + wait,), seconds=20.0)
        self._rule(replace(old, faults=(*old.faults, fault)), f"fault {call} {kind} in {wait}")

    @rule(deed=st.sampled_from(DEEDS), rank=st.integers(0, 1))
    def happens(self, deed: Deed, rank: int) -> None:
        """To the newest of our slices, when there is one."""
        ours = [look.name for look in self.access.cloud.live() if look.phase.value == "ready"]
        if ours:
            whole = deed in (Deed.PREEMPT, Deed.HANG, Deed.EXIT)
            self.access.cloud.do(ours[-1], deed, None if whole else rank)
            self.log.append(f"{deed} {ours[-1]}")
            Machine.counts["happenings"] += 1

    @rule(seconds=st.sampled_from([1.0, 7.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.access.cloud.advance()

    @rule(verb=st.sampled_from([*COMMANDS, "launch", "go_on"]), deadly=st.integers(0, 60))
    def command(self, verb: str, deadly: int) -> None:
        """deadly: the point at which it is cut off; 0, or one that it does not reach: it comes to its end."""
        self._do(verb, deadly)

    @rule(kinds=st.lists(st.sampled_from(CHANGING), min_size=1, max_size=3), deadly=st.integers(0, 30))
    def launch_in_trouble(self, kinds: list[FaultKind], deadly: int) -> None:
        """A new slice, whose first create goes wrong, and the next one in another way; then the same command again."""
        self._do("down")
        for wait, kind in enumerate(kinds):
            self.fault(("create", kind if can_befall(kind, "create") else FaultKind.TIMEOUT_AFTER), wait)
        self._do("launch", deadly)
        self.no_slice_is_orphaned_and_closed_ones_are_deleted()
        self._do("launch")

    @rule(kinds=st.lists(st.sampled_from(CHANGING), min_size=1, max_size=3), deadly=st.integers(0, 30))
    def down_in_trouble(self, kinds: list[FaultKind], deadly: int) -> None:
        for wait, kind in enumerate(kinds):
            self.fault(("end", kind if can_befall(kind, "end") else FaultKind.TIMEOUT_BEFORE), wait)
        self._do("down", deadly)

    # --- what must be so ----------------------------------------------------------------------------------

    @invariant()
    def one_slice_for_an_intent(self) -> None:
        made = intents_of(self._cloud(), living=not self.tokens)
        assert all(count == 1 for count in made.values()), (made, self.log)

    @invariant()
    def others_are_not_touched(self) -> None:
        cloud = self._cloud()
        assert cloud.trespasses() == (), self.log
        assert sum(one.foreign for one in cloud.host_world().living()) == 2, self.log

    @invariant()
    def no_slice_is_orphaned_and_closed_ones_are_deleted(self) -> None:
        """A late create is an exception: it may come when its record is closed, and is the sweep's business."""
        cloud = self._cloud()
        in_time = {call.uid for call in (*cloud.calls("create"), *cloud.calls("queue")) if call.acted}
        with open_reader() as reader:
            tokens = {str(row["token"]): str(row["state"]) for row in reader.rows("intents")}
        slices = [(one.uid, one.name, one.labels) for one in cloud.host_world().living() if not one.queued]
        slices += [(one.uid, one.name, one.node["labels"]) for one in cloud.state.queued.values() if not one.gone]
        for uid, name, labels in slices:
            if uid in in_time:
                assert tokens.get(labels[INTENT]) not in (None, *FINAL_STATES), (name, tokens, self.log)

    @invariant()
    def the_budgets_stay_separate(self) -> None:
        with open_reader() as reader:
            rows, jobs = reader.rows("attempts"), reader.rows("jobs")
        for job in jobs:
            mine = [r for r in rows if (r["cluster_uid"], r["job_id"]) == (job["cluster_uid"], job["id"])]
            past = [EndCause(row["cause"]) for row in mine if row["attempt"] < job["attempt"]]
            assert sum(cause is EndCause.PROGRAM for cause in past) <= FAILURES, (past, self.log)
            echoes = sum(row["generation"] is None for row in mine)  # saved and went, then the machines went as well
            assert sum(cause in LOSSES for cause in past) <= PREEMPTIONS + echoes, (past, self.log)

    def teardown(self) -> None:
        if not hasattr(self, "access"):
            return
        try:
            self._end_well()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------------------

    def _cloud(self) -> SimulatedCloud:
        return self.access.cloud

    def _rule(self, scenario: Scenario, words: str) -> None:
        self.access.cloud = SimulatedCloud(scenario, self.clock, self.access.cloud.state)
        self.log.append(words)
        Machine.counts["faults"] += 1

    def _do(self, verb: str, deadly: int = 0) -> OrchError | None:
        home = self.home(Points(_strike, deadly))
        before, calls = self._intents(), len(self._cloud().state.calls)
        expected = {intent.name for intent in before.values() if intent.state not in FINAL_STATES}
        self.clock.limit = self.clock.now() + LONGEST
        failed: OrchError | None = None
        try:
            said = _COMMANDS[verb](home)
        except Crash as crash:
            said = f"killed {crash}"
            _forget_the_dead()
            Machine.counts["kills"] += 1
        except OrchError as error:
            failed, said = error, f"{type(error).__name__} {error}"
        self.clock.limit = float("inf")
        Machine.counts["commands"] += 1
        self.log.append(f"{verb}: {said}")
        if verb == "reap":  # an empty or partial listing deletes nothing, and no sweep touches what a record wants
            ended = {call.name for call in self._cloud().state.calls[calls:] if call.op in MUTATING}
            assert not ended & expected, (ended, self.log)
            assert self._intents() == before, self.log
        return failed

    def _intents(self) -> dict[str, Intent]:
        with open_store(load_paths(), self.home().services()) as store:
            return dict(store.all_intents())

    def _end_well(self) -> None:
        """The faults are over: down and the sweep leave nothing, and the audit records everything."""
        self._rule(replace(self._cloud().scenario, faults=()), "no more faults")
        self.clock.sleep(120.0)
        for _ in range(3):
            failed = self._do("down")
            with open_reader() as reader:
                if reader.cluster("c") is None:
                    break
        else:
            raise AssertionError(f"down does not end it: {failed}; {self.log}")
        self._do("reap")
        self.others_are_not_touched()
        self.clock.sleep(60.0)
        assert live_of(self._cloud()) == {}, (live_of(self._cloud()), self.log)
        assert integrity.find_store_faults(store_location(os.environ, load_paths())) == (), self.log


def run_histories(kind: type[Machine], examples: int, steps: int) -> dict[str, int]:
    """Return the counts; raise what the first broken history raises, made small.

    The full lane draws new histories; the other lanes play the same ones each time.
    """
    Machine.counts = Counter()
    checks = list(HealthCheck)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis gives it no types
        kind,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=checks,
            database=None,
            derandomize=not FULL,
        ),
    )
    return dict(sorted(Machine.counts.items()))


class LimitedClock(ManualClock):
    """Says when a command takes longer than any may."""

    def __init__(self) -> None:
        super().__init__(START)
        self.limit = float("inf")

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        assert self.now() < self.limit, "the command does not end"


def _strike(name: str) -> None:
    raise Crash(name)


def _forget_the_dead() -> None:
    """A process that died holds no lease; ours lives on, so that this has to be played."""
    with contextlib.closing(sqlite3.connect(load_paths().database)) as connection, contextlib.suppress(sqlite3.Error):
        connection.execute("UPDATE leases SET owner = '', expires = 0")  # no such table: killed before it was made
        connection.commit()


def _task() -> Task:
    bucket = Path(os.environ["ORCH_HOME"]).parent / "bucket"
    recovery = Recovery(max_preemptions=PREEMPTIONS, max_failures=FAILURES)
    return sim_task(setup="true", recovery=recovery, checkpoint=Checkpoint(bucket=f"file://{bucket}"))


def _hasty(home: SimHome, ready: PreparedCommand) -> PreparedCommand:
    """With deadlines of seconds, not of minutes."""
    ready = simulated(ready, home.candidate(spot=True), home.candidate(spot=True, other_zone=True))
    assert isinstance(ready.desired, Run | Down | Stop | Start)
    return replace(ready, desired=replace(ready.desired, budgets=SHORT))


def _go_on(home: SimHome) -> str:
    with open_reader() as reader:
        cluster = reader.cluster("c")
        jobs = [job for job in reader.jobs(cluster) if job.state != "ended"] if cluster is not None else []
    return (
        str(home.drive(_hasty(home, commands.prepare_continuation("c", jobs[0]))).step)
        if jobs
        else "nothing to go on with"
    )


def _down(home: SimHome) -> str:
    with open_reader() as reader:
        if reader.cluster("c") is None:
            return "nothing to take down"
    return str(home.drive(_hasty(home, commands.prepare_down("c"))).step)


def _reap(home: SimHome) -> str:
    world = home.services()
    with home.points.commits(), open_store(load_paths(), world) as store:
        found = sweep.judge_owned_slices(store, world, [home.provider_name])
        return str([one.problem for one in sweep.end_orphans(store, world, Listener(), found)])


_COMMANDS: dict[str, Callable[[SimHome], str]] = {
    "launch": lambda home: str(home.drive(_hasty(home, sim_launch(_task()))).step),
    "resume": lambda home: str(home.drive(_hasty(home, prepare_resume("c", after=TeardownPolicy.KEEP))).step),
    "go_on": _go_on,
    "down": _down,
    "stop": lambda home: str(home.drive(_hasty(home, commands.prepare_stop("c"))).step),
    "start": lambda home: str(home.drive(_hasty(home, commands.prepare_start("c"))).step),
    "reap": _reap,
}
