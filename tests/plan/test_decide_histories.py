"""decide() driven through random histories of faults: what holds in every one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from random import Random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from plan_faults import CODES, DELAYS, LOSSES, Fault, Mishap, RealHost, RealSlice
from plan_samples import candidate, sample_run
from plan_simulation import SimulatedCluster, run_to_the_end, take_down
from support.lanes import by_lane
from support.proof import report

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import Conclude, CreateSlice, EndAttempt, NextAttempt, StartJob
from orchestrator.plan.causes import LOSSES as LOSS_CAUSES
from orchestrator.plan.causes import SLICE_LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Limits, Run, Strategy, TimerSpec
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL_STATES, EndedAttempt, Intent, IntentState, Observed
from orchestrator.plan.recovery import JITTER, SHORT_ATTEMPT
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Owned, Request, SliceSpec, SliceState
from orchestrator.values import Text

HISTORIES = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
MOST_TURNS = 1200  # far above the longest honest history: three candidates, four losses and every deadline in full


@dataclass(frozen=True)
class PlainRequests:
    def create_request(self, spec: SliceSpec) -> Request:
        return Request(service="t", method="CREATE", target=spec.name)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service="t", method="END", target=name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service="t", method="STOP", target=name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service="t", method="START", target=name)


FACTS = Facts({"sample": PlainRequests()})

ODDS = {
    Fault.PROGRAM_ENDS: 4,
    Fault.HUNG_ALIKE: 2,
    Fault.HUNG_APART: 2,
    Fault.UNKILLABLE: 2,
    Fault.NO_ACCESS: 0.4,
    Fault.PREEMPTED: 2,
    Fault.REBOOT: 2,
    Fault.SILENT: 2,
    Fault.DOWN_REQUESTED: 0.2,
    Fault.CANCELLED: 0.2,
    Fault.IMPOSTOR: 0.2,
}
BAD = [
    Mishap(fault, number, late)
    for fault in Fault
    for number in range(10)
    for late in (False, True)
    for _ in range(round(5 * ODDS.get(fault, 1)))
]


def script_of(events: list[tuple[int, Mishap]]) -> list[Mishap]:
    """One mishap a turn, for ever after the last one nothing."""
    script = [Mishap()] * (max((turn for turn, _ in events), default=-1) + 1)
    for turn, mishap in events:
        script[turn] = mishap
    return script


# The first of BAD is what a failing history shrinks to: nothing. Few events, drawn with their turn, are cheap to draw.
mishaps = st.sampled_from([Mishap(), *BAD])
scripts = st.lists(st.tuples(st.integers(0, 60), mishaps), min_size=8, max_size=16).map(script_of)
SHORT = Budgets(
    boot_deadline=60.0, contact_deadline=40.0, end_deadline=60.0, lost_deadline=30.0, silence_deadline=45.0,
    unclear_deadline=50.0, hang_deadline=20.0, backoff_cap=60.0, save_before=30.0,
)  # fmt: skip
PLACES = (
    candidate(2, zone="zone-0"),
    candidate(2, zone="zone-1"),
    candidate(2, region="far", zone="zone-2"),
    candidate(2, zone="zone-0", market=OnDemand()),
)
BLOCK = candidate(2, zone="zone-3", market=CapacityBlock("cr-1"))
OWN = (candidate(2, market=Owned(), price_per_hour=0.0),)
TIMER = TimerSpec("t1", Text.of("#!/bin/bash\ntrue\n"))
runs_to_try = st.integers(0, 2**32).map(lambda seed: random_desired(Random(seed)))


class CheckedSimulation(SimulatedCluster):
    """The same world; looks at every turn whether a promise is broken. proofs: what hosts said at the last look."""

    proofs: set[tuple[str, int, int | None]]
    verdict: EndedAttempt | None = None  # recorded for the current attempt at the last observation

    def turn(self) -> bool:
        before = len(self.steps)
        goes_on = super().turn()
        for step in self.steps[before:]:
            if isinstance(step, NextAttempt):
                self._check_charge(step, self.proofs)
            if isinstance(step, EndAttempt):
                self._check_verdict(step)
            if isinstance(step, Wait) and step.on is WaitFor.PAUSE and isinstance(self.desired, Run):
                self._check_pause(step)
            if isinstance(step, Conclude) and step.code == "cancelled":
                self._check_cancelled(step)
            if isinstance(step, Conclude) and step.status == Exit.OK and self.sample_run.job is not None:
                assert self.proofs >= {("rank", rank, 0) for rank in self.ranks}, "success without every rank's exit 0"
        self._check_now()
        return goes_on

    def observe(self) -> Observed:
        observed = super().observe()
        self.proofs, self.verdict = self._proofs(), observed.pending_end
        return observed

    @property
    def sample_run(self) -> Run:
        assert isinstance(self.desired, Run)
        return self.desired

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.sample_run.ranks if self.sample_run.ranks is not None else tuple(range(2))

    def _proofs(self) -> set[tuple[str, int, int | None]]:
        """Return the state of the program on every host: ("rank", rank, exit code), None for a lost one.

        The word is "stopped" where something else than the program ended it.
        """
        if not isinstance(self.desired, Run):
            return set()
        found: set[tuple[str, int, int | None]] = set()
        for real in self.slices.values():
            for rank, host in enumerate(real.hosts):
                phase, code = self.job_on(host)
                if phase in (JobPhase.FINISHED, JobPhase.LOST):
                    stopped = host.jobs[self.folder].ended_by is not None
                    found.add(("stopped" if stopped else "rank", rank, code))
        return found

    def _check_charge(self, step: NextAttempt, proofs: set[tuple[str, int, int | None]]) -> None:
        codes = {code for _, rank, code in proofs if rank in self.ranks}
        budgets = self.sample_run.budgets
        asks = {None, int(Exit.PREEMPTED)}
        assert step.exit_code not in budgets.fail_on, "run again after a status that forbids it"
        if self.verdict is not None:
            assert step.cause is self.verdict.cause, "the verdict on record was forgotten"
        elif step.cause is EndCause.EXPIRED:
            assert self.now >= self.block_ends - budgets.save_before, "called over before its time"
        elif step.cause is EndCause.PROGRAM:
            assert codes - {0, None}, "a failure was charged that no program had"
        elif step.cause is EndCause.EXIT_STATUS:
            assert codes & set(budgets.restart_on), "a status was charged that no program had"
        else:
            assert step.cause in SLICE_LOSSES
            assert step.generation is not None or codes & asks, "a program's failure was charged as a loss"
        if step.generation is None and self.verdict is None:
            assert not codes & set(budgets.fail_on), "run again although one rank forbids it"

    def _check_verdict(self, step: EndAttempt) -> None:
        sample_run, budgets = self.sample_run, self.sample_run.budgets
        assert self.verdict is None, "judged twice"
        codes = {code for _, rank, code in self.proofs if rank in self.ranks}
        if step.cause is EndCause.EXPIRED:
            assert self.now >= self.block_ends - budgets.save_before, "called over before its time"
        elif step.cause is EndCause.LIMIT:
            assert sample_run.limits.hours is not None or sample_run.limits.dollars is not None
        elif step.cause in (EndCause.HUNG, EndCause.PROGRAM) and not codes - {0}:
            hung = [job for real in self.slices.values() for host in real.hosts for job in host.jobs.values()]
            ages = [self.now - job.hung for job in hung if job.hung is not None]
            assert max(ages, default=0.0) >= budgets.hang_deadline, "called hung, and it moved"
            assert self.folder in self.looked_into, "a hung program is ended without its stack traces"
        elif step.cause in (EndCause.HOST_DIED, EndCause.UNREACHABLE):
            assert codes - {0} or any(real.owned for real in self.slices.values())

    def _check_cancelled(self, step: Conclude) -> None:
        heard = [
            host
            for real in self.slices.values()
            for host in real.hosts
            if self.now >= max(host.contact_from, self.offline_until) and not host.impostor
        ]
        left = any(self.folder in host.running(self.now) for host in heard)
        assert not left or "may still run" in step.why, "called cancelled, and it runs on"

    def _check_pause(self, wait: Wait) -> None:
        most = self.sample_run.budgets.backoff_cap * (1 + JITTER)
        assert wait.until is not None
        assert wait.until - self.now <= most, "a pause above its cap"
        if wait.reason.startswith("a short pause"):
            earlier, later = [ended for ended in self.ended if ended.attempt != self.attempt][-2:]
            assert later.at - earlier.at < SHORT_ATTEMPT, "a pause after an attempt that did useful work"

    def _check_now(self) -> None:
        assert len(self.slices) <= 1, f"two slices at the same time: {list(self.slices)}"
        assert max(self.created.values(), default=0) <= 1, "a token made two slices"
        assert self.concluded <= 1, "the result was recorded twice"
        live = {intent.name for intent in self.intents.values() if intent.state not in FINAL_STATES}
        assert set(self.slices) <= live, "a slice without an open record"
        newest = max(self.intents, default=0)
        booked = [ended.generation for ended in self.ended if ended.generation is not None]
        assert len(booked) == len(set(booked)), "one loss was booked twice"
        assert len({ended.attempt for ended in self.ended}) == len(self.ended), "one attempt ended twice"
        for generation, intent in self.intents.items():
            if intent.cause in SLICE_LOSSES and self.opened_at < generation < newest:
                assert generation in booked, "a lost slice was replaced and not booked"
        if isinstance(self.desired, Run):
            charged = Counter(ended.cause for ended in self.ended if ended.attempt != self.attempt)
            assert self.losses_charged() <= self.desired.budgets.preemptions
            assert charged[EndCause.PROGRAM] <= self.desired.budgets.failures
            free = {EndCause.EXPIRED} if self.desired.budgets.preemptions else set[EndCause]()
            assert not charged.keys() - LOSS_CAUSES - {EndCause.PROGRAM} - free, "restarted for what has no budget"
            assert charged[EndCause.EXPIRED] <= 1, "one block was over twice"

    def losses_charged(self) -> int:
        """From the record alone. A loss right after the program had left on its own is the same loss once more."""
        past = [ended for ended in self.ended if ended.attempt != self.attempt]
        count = 0
        for index, ended in enumerate(past):
            before = past[index - 1] if index else None
            again = (
                before is not None
                and before.generation is None
                and ended.generation is not None
                and {before.cause, ended.cause} <= SLICE_LOSSES
                and ended.at - before.at < SHORT_ATTEMPT
            )
            count += ended.cause in LOSS_CAUSES and not again
        return count


def simulation(desired: Run, script: list[Mishap], *, existing: bool = False, lasts: float = inf) -> CheckedSimulation:
    """existing: the cluster is there from an earlier job. lasts: seconds until a capacity block is over."""
    made = CheckedSimulation(desired, FACTS, list(script))
    made.block_ends = made.now + lasts
    made.saves = desired.budgets.failures != 1  # of two programs in three
    made.memory.well_at = made.now
    if existing:
        made.intents[1] = Intent(
            generation=1,
            name="demo-1",
            candidate=desired.candidates[0],
            state=IntentState.ACCEPTED,
            since=made.now - 86_400.0,
            billed_from=made.now,
        )
        hosts = [RealHost(saves=made.saves) for _ in range(2)]
        owned, block = (isinstance(desired.candidates[0].market, kind) for kind in (Owned, CapacityBlock))
        made.own_hosts = hosts if owned else []
        ready = RealSlice("demo-1", "uid-1", hosts, SliceState.READY, None, owned=owned, born=made.now, block=block)
        made.slices["demo-1"] = ready
        made.opened_at = 1
    return made


def keep_promises(desired: Run, script: list[Mishap], *, existing: bool, lasts: float = inf) -> str:
    """One history to its end, then `orch down`. Returns how it ended, for the counts."""
    one = simulation(desired, script, existing=existing or not desired.create, lasts=lasts)
    ending = run_to_the_end(one, MOST_TURNS)
    well = one.outcome is not None and one.outcome.status == Exit.OK and not _unfinished(one)
    assert isinstance(ending, Done) == well, "the last word and the record differ"
    if desired.teardown is TeardownPolicy.DOWN and one.outcome is not None and not _unfinished(one):
        assert not one.slices, "the result is reported and machines are left"
    if one.outcome is not None and one.outcome.code == "limit" and not _unfinished(one):
        assert not one.slices, "a limit was reached and machines are left"
    assert one.losses_charged() <= one.losses + one.slow, "a loss was made up, or charged twice"
    check_down(one)
    return ending.code if isinstance(ending, GiveUp) else "ok"


def check_down(one: SimulatedCluster) -> None:
    """`orch down`, typed again when a slow provider made it give up, succeeds and leaves nothing."""
    done = next((ending for _ in range(4) if isinstance(ending := take_down(one), Done)), None)
    assert done is not None, f"typed four times, down is still not done: {one.ending}"
    assert not one.slices, "down reports done, and a machine is left"
    left = [job for host in one.own_hosts for job in host.jobs.values() if job.phase(one.now) is JobPhase.RUNNING]
    assert not left, "down reports done, and a program runs on on the user's own machine"
    assert all(intent.state in FINAL_STATES for intent in one.intents.values())


@HISTORIES
@given(runs_to_try, scripts, st.booleans())
def test_every_history_ends_and_down_after_it_leaves_nothing(
    desired: Run, script: list[Mishap], existing: bool
) -> None:
    event(keep_promises(desired, script, existing=existing))


@pytest.mark.promise("P2")
def test_thousands_of_histories_keep_every_promise_and_reach_every_ending() -> None:
    """The same promises over many more histories than hypothesis draws in the time; a seed names the one that fails."""
    endings: Counter[str] = Counter()
    seeds = by_lane(2000, 15_000)
    for seed in range(seeds):
        dice = Random(seed)
        desired = random_desired(dice)
        script = [dice.choice(BAD) if dice.random() < 0.25 else Mishap() for _ in range(dice.randrange(90))]
        try:
            endings[keep_promises(desired, script, existing=dice.random() < 0.3)] += 1
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
    assert set(endings) >= {
        "ok", "program-failed", "host-lost", "capacity", "setup-failed", "identity-mismatch", "permission", "timeout",
        "conflict", "limit", "cancelled",
    }, endings  # fmt: skip
    report(
        "random histories of `decide` alone", {"histories": seeds, "kinds of faults": [str(fault) for fault in Fault]}
    )


@pytest.mark.promise("P2")
def test_histories_on_a_capacity_block_keep_every_promise_and_its_end_is_never_charged() -> None:
    """The end of a block is no fault of the simulation: a charge for it would be a loss without a cause."""
    endings: Counter[str] = Counter()
    for seed in range(by_lane(600, 3_000)):
        dice = Random(seed)
        desired = random_desired(dice)
        places = () if dice.random() < 0.4 else PLACES[: dice.randint(1, 3)]
        desired = replace(desired, candidates=(BLOCK, *places))
        script = [dice.choice(BAD) if dice.random() < 0.1 else Mishap() for _ in range(dice.randrange(60))]
        lasts, existing = dice.uniform(20.0, 200.0), dice.random() < 0.3
        try:
            endings[keep_promises(desired, script, existing=existing, lasts=lasts)] += 1
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
    assert set(endings) >= {"ok", "program-failed", "host-lost", "capacity", "timeout", "limit", "cancelled"}, endings


def random_desired(dice: Random) -> Run:
    return sample_run(
        2,
        uid=Text.of("uid"),
        run_id=Text.of("run"),
        candidates=OWN if dice.random() < 0.2 else PLACES[: dice.randint(1, 4)],
        env=(),
        mounts=(),
        teardown=dice.choice(list(TeardownPolicy)),
        budgets=replace(
            SHORT,
            preemptions=dice.randint(0, 3),
            failures=dice.randint(0, 2),
            restart_on=dice.choice([(), (3,)]),
            fail_on=dice.choice([(), (42,)]),
            strategy=dice.choice(list(Strategy)),
            capacity_wait=dice.choice([0.0, 400.0]),
            capacity_wait_first=dice.choice([0.0, 400.0]),
        ),
        limits=dice.choice(
            [Limits(), Limits(), Limits(), Limits(hours=dice.uniform(0.005, 0.2)), Limits(dollars=dice.uniform(0.1, 2))]
        ),
        timer=dice.choice([None, TIMER]),
        ranks=dice.choice([None, None, (0,)]),
        create=dice.random() < 0.8,
    )


def _unfinished(one: SimulatedCluster) -> bool:
    """Return whether the end of the machines failed with a message: not in time, or refused by the provider."""
    ending = one.ending
    return one.outcome is not None and isinstance(ending, GiveUp) and ending.what != one.outcome.what


@HISTORIES
@given(runs_to_try, scripts)
def test_a_program_failure_alone_never_costs_a_machine(desired: Run, script: list[Mishap]) -> None:
    desired = replace(desired, limits=Limits())
    kept = {
        Fault.PROGRAM_ENDS,
        Fault.CRASH_BEFORE,
        Fault.CRASH_AFTER,
        Fault.CRASH_CALLED,
        Fault.CRASH_RECORDED,
        Fault.NONE,
    }
    one = simulation(desired, [mishap for mishap in script if mishap.fault in kept])
    run_to_the_end(one, MOST_TURNS)
    assert sum(isinstance(step, CreateSlice) for step in one.steps if one.created) >= len(one.created)
    assert len(one.created) <= 1, "a new slice after a failure of the program"
    assert all(ended.generation is None for ended in one.ended)


@HISTORIES
@given(runs_to_try, st.lists(st.sampled_from([fault for fault in Fault if fault not in LOSSES]), max_size=40))
def test_without_a_loss_no_loss_is_charged(desired: Run, faults: list[Fault]) -> None:
    delays = DELAYS - {Fault.OFFLINE}  # our own network alone never costs a machine
    harmless = [fault for fault in faults if fault not in {*delays, Fault.IMPOSTOR}]
    one = simulation(desired, [Mishap(fault, index) for index, fault in enumerate(harmless)])
    run_to_the_end(one, MOST_TURNS)
    assert all(ended.generation is None for ended in one.ended)


@HISTORIES
@given(
    runs_to_try, st.integers(0, 60), st.sampled_from([f for f in Fault if f.value.startswith("crash")]), st.booleans()
)
def test_a_crash_at_any_point_changes_nothing_about_the_result(
    desired: Run, turn: int, crash: Fault, existing: bool
) -> None:
    """After one crash at any point the run has the same end, with as many machines and attempts."""
    desired = replace(desired, limits=Limits())
    existing = existing or not desired.create
    calm = simulation(desired, [], existing=existing)
    one = simulation(desired, [*[Mishap()] * turn, Mishap(crash)], existing=existing)
    assert run_to_the_end(one, MOST_TURNS) == run_to_the_end(calm, MOST_TURNS)
    assert (one.created, one.ended, one.outcome) == (calm.created, calm.ended, calm.outcome)
    assert isinstance(one.ending, Done)


@pytest.mark.promise("P4")
@HISTORIES
@given(st.lists(mishaps, max_size=25), st.integers(0, 25), st.booleans())
def test_down_in_the_middle_of_anything_leaves_nothing(script: list[Mishap], turns: int, existing: bool) -> None:
    one = simulation(
        sample_run(2, uid=Text.of("uid"), run_id=Text.of("run"), env=(), mounts=()), script, existing=existing
    )
    for _ in range(turns):
        if not one.turn():
            break
    check_down(one)


def test_down_right_after_a_crash_or_a_lost_call_at_any_turn_leaves_nothing() -> None:
    """Every single fault at every single turn, with `down` as the next command."""
    desired = sample_run(
        2,
        uid=Text.of("uid"),
        run_id=Text.of("run"),
        env=(),
        teardown=TeardownPolicy.DOWN,
        budgets=replace(SHORT, preemptions=2, failures=2),
    )
    calm = simulation(desired, [])
    run_to_the_end(calm, MOST_TURNS)
    for fault in Fault:
        for turn in range(len(calm.steps)):
            one = simulation(desired, [*[Mishap()] * turn, Mishap(fault, 1)])
            for _ in range(turn + 1):
                if not one.turn():
                    break
            check_down(one)


@HISTORIES
@given(runs_to_try, scripts)
def test_the_program_is_started_once_per_attempt_and_host_only(desired: Run, script: list[Mishap]) -> None:
    """Every start names the folder of the current attempt, so that repeating it is harmless."""
    one = simulation(desired, script)
    run_to_the_end(one, MOST_TURNS)
    starts = [step for step in one.steps if isinstance(step, StartJob)]
    assert all(step.job == f"1-a{step.attempt}" for step in starts)
    assert [step.attempt for step in starts] == sorted(step.attempt for step in starts)
    assert {step.attempt for step in starts} <= set(range(1, len(one.ended) + 2))


def test_the_faults_reach_every_part_of_the_table() -> None:
    """Each fault, alone and at some turn, changes what happens in the simulation."""
    budgets = replace(SHORT, preemptions=2, failures=2)
    desired = sample_run(2, uid=Text.of("u"), run_id=Text.of("r"), teardown=TeardownPolicy.DOWN, budgets=budgets)
    calm = simulation(desired, [])
    run_to_the_end(calm, MOST_TURNS)
    for fault in Fault:
        changed = False
        for turn in range(len(calm.steps)):
            for number in (1, 9):
                one = simulation(desired, [*[Mishap()] * turn, Mishap(fault, number)])
                run_to_the_end(one, MOST_TURNS)
                changed = changed or one.steps != calm.steps or one.ending != calm.ending
        # A process that cannot be killed has an effect only when it is killed.
        assert changed or fault in (Fault.NONE, Fault.CRASH_AFTER, Fault.UNKILLABLE), f"{fault} changes nothing at all"
    assert CODES[0] == 0
