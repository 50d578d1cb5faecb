"""decide() driven through random histories of faults: what holds in every one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from plan_samples import candidate, wish
from plan_world import CODES, LOSSES, Fault, Mishap, RealHost, RealSlice, World, run_to_the_end, take_down

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import Conclude, CreateSlice, NextAttempt, StartJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import After, Budgets, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL, Intent, IntentState, Observed
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.slices import Request, SliceSpec, SliceState
from orchestrator.values import Text

HISTORIES = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
MOST_TURNS = 1200  # far above the longest honest history: three candidates, four losses and every deadline in full


@dataclass(frozen=True)
class PlainRequests:
    def create_request(self, spec: SliceSpec) -> Request:
        return Request("t", "CREATE", spec.name)

    def end_request(self, name: str) -> Request:
        return Request("t", "END", name)

    def stop_request(self, name: str) -> Request:
        return Request("t", "STOP", name)

    def start_request(self, name: str) -> Request:
        return Request("t", "START", name)


FACTS = Facts({"sample": PlainRequests()})

ODDS = {
    Fault.PROGRAM_ENDS: 4,
    Fault.PREEMPTED: 2,
    Fault.REBOOT: 2,
    Fault.SILENT: 2,
    Fault.WANTED_DOWN: 0.2,
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
SHORT = Budgets(boot_deadline=60.0, contact_deadline=40.0, end_deadline=60.0, lost_deadline=30.0, unclear_deadline=50.0)
PLACES = tuple(candidate(2, zone=f"zone-{index}") for index in range(3))
wishes = st.integers(0, 2**32).map(lambda seed: random_wish(Random(seed)))


class Watched(World):
    """The same world; looks at every turn whether a promise is broken. proofs: what hosts said at the last look."""

    proofs: set[tuple[str, int, int | None]]

    def turn(self) -> bool:
        before = len(self.steps)
        goes_on = super().turn()
        for step in self.steps[before:]:
            if isinstance(step, NextAttempt):
                self._check_charge(step, self.proofs)
            if isinstance(step, Conclude) and step.status == Exit.OK and self.wish.job is not None:
                assert self.proofs >= {("rank", rank, 0) for rank in self.ranks}, "success without every rank's exit 0"
        self._check_now()
        return goes_on

    def look(self) -> Observed:
        observed = super().look()
        self.proofs = self._proofs()
        return observed

    @property
    def wish(self) -> Run:
        assert isinstance(self.desired, Run)
        return self.desired

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.wish.ranks if self.wish.ranks is not None else tuple(range(2))

    def _proofs(self) -> set[tuple[str, int, int | None]]:
        """What every host says of the program now: ("rank", rank, exit code), None for a lost one."""
        if not isinstance(self.desired, Run):
            return set()
        found: set[tuple[str, int, int | None]] = set()
        for real in self.slices.values():
            for rank, host in enumerate(real.hosts):
                phase, code = self.job_on(host)
                if phase in (JobPhase.FINISHED, JobPhase.LOST):
                    found.add(("rank", rank, code))
        return found

    def _check_charge(self, step: NextAttempt, proofs: set[tuple[str, int, int | None]]) -> None:
        codes = {code for _, rank, code in proofs if rank in self.ranks}
        asks = {None, int(Exit.PREEMPTED), *self.wish.budgets.restart_on}
        if step.cause is EndCause.PROGRAM:
            assert codes - {0, None}, "a failure was charged that no program had"
        else:
            assert step.cause is EndCause.PREEMPTED
            assert step.generation is not None or codes & asks, "a program's failure was charged as a preemption"

    def _check_now(self) -> None:
        assert len(self.slices) <= 1, f"two slices at once: {list(self.slices)}"
        assert max(self.created.values(), default=0) <= 1, "a token made two slices"
        assert self.concluded <= 1, "the result was recorded twice"
        live = {intent.name for intent in self.intents.values() if intent.state not in FINAL}
        assert set(self.slices) <= live, "a slice without an open record"
        newest = max(self.intents, default=0)
        booked = {ended.generation for ended in self.ended}
        for generation, intent in self.intents.items():
            if intent.cause is EndCause.PREEMPTED and self.opened_at < generation < newest:
                assert generation in booked, "a lost slice was replaced and not charged"
        if isinstance(self.desired, Run):
            charged = Counter(ended.cause for ended in self.ended)
            assert charged[EndCause.PREEMPTED] <= self.desired.budgets.preemptions
            assert charged[EndCause.PROGRAM] <= self.desired.budgets.failures


def world(desired: Run, script: list[Mishap], *, existing: bool = False) -> Watched:
    """existing: the cluster is there from an earlier job."""
    made = Watched(desired, FACTS, list(script))
    if existing:
        made.intents[1] = Intent(1, "demo-1", desired.candidates[0], IntentState.ACCEPTED, made.now - 86_400.0)
        hosts = [RealHost() for _ in range(2)]
        made.slices["demo-1"] = RealSlice("demo-1", "uid-1", hosts, SliceState.READY, None)
        made.opened_at = 1
    return made


def keep_promises(desired: Run, script: list[Mishap], *, existing: bool) -> str:
    """One history to its end, then `orch down`. Returns how it ended, for the counts."""
    one = world(desired, script, existing=existing or not desired.create)
    ending = run_to_the_end(one, MOST_TURNS)
    well = one.outcome is not None and one.outcome.status == Exit.OK and not _unfinished(one)
    assert isinstance(ending, Done) == well, "the last word and the record differ"
    if desired.after is After.DOWN and one.outcome is not None and not _unfinished(one):
        assert not one.slices, "the result is said and machines are left"
    assert sum(ended.generation is not None for ended in one.ended) <= one.losses + one.slow, "a loss was made up"
    check_down(one)
    return ending.code if isinstance(ending, GiveUp) else "ok"


def check_down(one: World) -> None:
    """`orch down`, typed again when a slow provider made it give up, ends well and leaves nothing."""
    done = next((ending for _ in range(4) if isinstance(ending := take_down(one), Done)), None)
    assert done is not None, f"typed four times, down is still not done: {one.ending}"
    assert not one.slices, "down says done, and a machine is left"
    assert all(intent.state in FINAL for intent in one.intents.values())


@HISTORIES
@given(wishes, scripts, st.booleans())
def test_every_history_ends_and_down_after_it_leaves_nothing(
    desired: Run, script: list[Mishap], existing: bool
) -> None:
    event(keep_promises(desired, script, existing=existing))


def test_thousands_of_histories_keep_every_promise_and_reach_every_ending() -> None:
    """The same promises over many more histories than hypothesis draws in the time; a seed names the one that fails."""
    endings: Counter[str] = Counter()
    for seed in range(2000):
        dice = Random(seed)
        desired = random_wish(dice)
        script = [dice.choice(BAD) if dice.random() < 0.25 else Mishap() for _ in range(dice.randrange(90))]
        try:
            endings[keep_promises(desired, script, existing=dice.random() < 0.3)] += 1
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
    assert set(endings) >= {
        "ok", "program-failed", "host-lost", "capacity", "setup-failed", "identity-mismatch", "permission", "timeout",
        "conflict",
    }, endings  # fmt: skip


def random_wish(dice: Random) -> Run:
    return wish(
        2,
        uid=Text.of("uid"),
        run_id=Text.of("run"),
        candidates=PLACES[: dice.randint(1, 3)],
        env=(),
        mounts=(),
        after=dice.choice(list(After)),
        budgets=replace(
            SHORT,
            preemptions=dice.randint(0, 3),
            failures=dice.randint(0, 2),
            restart_on=dice.choice([(), (3,)]),
        ),
        ranks=dice.choice([None, None, (0,)]),
        create=dice.random() < 0.8,
    )


def _unfinished(one: World) -> bool:
    """It gave up on the way down, and said so: the machines did not go away in time, or the provider refused."""
    ending = one.ending
    return one.outcome is not None and isinstance(ending, GiveUp) and ending.what != one.outcome.what


@HISTORIES
@given(wishes, scripts)
def test_a_program_failure_alone_never_costs_a_machine(desired: Run, script: list[Mishap]) -> None:
    kept = {
        Fault.PROGRAM_ENDS,
        Fault.CRASH_BEFORE,
        Fault.CRASH_AFTER,
        Fault.CRASH_CALLED,
        Fault.CRASH_RECORDED,
        Fault.NONE,
    }
    one = world(desired, [mishap for mishap in script if mishap.fault in kept])
    run_to_the_end(one, MOST_TURNS)
    assert sum(isinstance(step, CreateSlice) for step in one.steps if one.created) >= len(one.created)
    assert len(one.created) <= 1, "a new slice after a failure of the program"
    assert all(ended.generation is None for ended in one.ended)


@HISTORIES
@given(wishes, st.lists(st.sampled_from([fault for fault in Fault if fault not in LOSSES]), max_size=40))
def test_without_a_loss_no_loss_is_charged(desired: Run, faults: list[Fault]) -> None:
    harmless = [f for f in faults if f not in (Fault.SLOW, Fault.UNCLEAR, Fault.AWAY, Fault.STALE, Fault.IMPOSTOR)]
    one = world(desired, [Mishap(fault, index) for index, fault in enumerate(harmless)])
    run_to_the_end(one, MOST_TURNS)
    assert all(ended.generation is None for ended in one.ended)


@HISTORIES
@given(wishes, st.integers(0, 60), st.sampled_from([f for f in Fault if f.value.startswith("crash")]), st.booleans())
def test_a_crash_at_any_point_changes_nothing_about_the_result(
    desired: Run, turn: int, crash: Fault, existing: bool
) -> None:
    """One crash, anywhere, and the run goes on to the same end with the same number of machines and attempts."""
    existing = existing or not desired.create
    calm = world(desired, [], existing=existing)
    one = world(desired, [*[Mishap()] * turn, Mishap(crash)], existing=existing)
    assert run_to_the_end(one, MOST_TURNS) == run_to_the_end(calm, MOST_TURNS)
    assert (one.created, one.ended, one.outcome) == (calm.created, calm.ended, calm.outcome)
    assert isinstance(one.ending, Done)


@HISTORIES
@given(st.lists(mishaps, max_size=25), st.integers(0, 25), st.booleans())
def test_down_in_the_middle_of_anything_leaves_nothing(script: list[Mishap], turns: int, existing: bool) -> None:
    one = world(wish(2, uid=Text.of("uid"), run_id=Text.of("run"), env=(), mounts=()), script, existing=existing)
    for _ in range(turns):
        if not one.turn():
            break
    check_down(one)


def test_down_right_after_a_crash_or_a_lost_call_at_any_turn_leaves_nothing() -> None:
    """Every single fault at every single turn, with `down` as the very next thing that is typed."""
    desired = wish(
        2,
        uid=Text.of("uid"),
        run_id=Text.of("run"),
        env=(),
        after=After.DOWN,
        budgets=replace(SHORT, preemptions=2, failures=2),
    )
    calm = world(desired, [])
    run_to_the_end(calm, MOST_TURNS)
    for fault in Fault:
        for turn in range(len(calm.steps)):
            one = world(desired, [*[Mishap()] * turn, Mishap(fault, 1)])
            for _ in range(turn + 1):
                if not one.turn():
                    break
            check_down(one)


@HISTORIES
@given(wishes, scripts)
def test_the_program_is_started_once_per_attempt_and_host_only(desired: Run, script: list[Mishap]) -> None:
    """Every start names the folder of the current attempt, so that repeating it is harmless."""
    one = world(desired, script)
    run_to_the_end(one, MOST_TURNS)
    starts = [step for step in one.steps if isinstance(step, StartJob)]
    assert all(step.job == f"1-a{step.attempt}" for step in starts)
    assert [step.attempt for step in starts] == sorted(step.attempt for step in starts)
    assert {step.attempt for step in starts} <= set(range(1, len(one.ended) + 2))


def test_the_faults_reach_every_part_of_the_table() -> None:
    """The world is not blind: each fault, alone and at some turn, changes what happens."""
    calm = world(wish(2, uid=Text.of("u"), run_id=Text.of("r"), after=After.DOWN, budgets=Budgets(2, 2)), [])
    run_to_the_end(calm, MOST_TURNS)
    for fault in Fault:
        changed = False
        for turn in range(len(calm.steps)):
            for number in (1, 9):
                one = world(wish(2, uid=Text.of("u"), run_id=Text.of("r"), after=After.DOWN, budgets=Budgets(2, 2)),
                            [*[Mishap()] * turn, Mishap(fault, number)])  # fmt: skip
                run_to_the_end(one, MOST_TURNS)
                changed = changed or one.steps != calm.steps or one.ending != calm.ending
        assert changed or fault in (Fault.NONE, Fault.CRASH_AFTER), f"{fault} changes nothing at all"
    assert CODES[0] == 0
