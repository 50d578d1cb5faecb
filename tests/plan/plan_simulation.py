"""A simulation in memory for decide(): a provider, hosts, a store and a loop, with a clock and faults.

The loop records what the engine records: intents, attempts, the outcome and `started` survive a crash; the last
failure, the `since` times and the collected stacks do not. A script has one fault per turn until its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from plan_faults import CODES, CRASHES, DELAYS, LOSSES, PROGRAM, Fault, Mishap, Program, RealHost, RealSlice

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    Conclude,
    CreateSlice,
    EndAttempt,
    EndSlice,
    FetchMount,
    ForgetSlice,
    HostAction,
    NextAttempt,
    RunSetup,
    StartJob,
    StartSlice,
    StopJob,
    StopSlice,
    SyncTree,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide import decide
from orchestrator.plan.decide_hosts import TIMER_LABEL
from orchestrator.plan.desired import Cancel, Desired, Down, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import (
    ActionFailure,
    ActionSuccess,
    Contact,
    EndedAttempt,
    HostView,
    Intent,
    IntentState,
    Observed,
    Outcome,
    encode_evidence,
)
from orchestrator.plan.repeated import count_success
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import CapacityBlock, Owned, SliceSpec, SliceState
from orchestrator.values import Text

TICK = 5.0  # seconds one wait takes
ACTION = 0.5  # seconds one action takes
TIMER_GRACE = 12.0  # seconds from the end of the programs to that of the machines, at a limit
WARNING = 15.0  # seconds between the program's notice of a preemption and the preemption


class Crash(Exception):
    """The orchestrator died here."""


class Refused(Exception):
    """A failed call, with the ActionFailure that it causes."""

    def __init__(self, code: str, status: int, *, lost: bool = False, final: bool = False) -> None:
        super().__init__(code)
        self.trouble = ActionFailure(
            action="",
            connection_lost=lost,
            what=f"what: {code}",
            why="why",
            code=code,
            status=status,
            times=1,
            next_step=NextStep(words="next"),
            final=final,
        )


OTHER_ACCOUNT = Outcome(status=Exit.OTHER_ACCOUNT, code="other-account", what="they belong to another account")


@dataclass
class Memory:
    """What a crash takes away."""

    trouble: ActionFailure | None = None
    unclear_since: float | None = None
    contact_since: float | None = None
    failed_since: float | None = None
    first_failed: int | None = None
    well_at: float | None = None
    stacks_of: str = ""
    succeeded: ActionSuccess | None = None


@dataclass
class SimulatedCluster:
    """Everything that is so, and the loop that acts on it."""

    desired: Desired
    facts: Facts
    script: list[Mishap] = field(default_factory=list)
    vain: type | None = None  # actions of this type report success and do nothing
    now: float = 1_000_000.0
    slices: dict[str, RealSlice] = field(default_factory=dict)
    intents: dict[int, Intent] = field(default_factory=dict)
    attempt: int = 1
    ended: list[EndedAttempt] = field(default_factory=list)
    started: bool = False
    opened_at: int = 0
    outcome: Outcome | None = None
    down_requested: bool = False
    cancelled: bool = False
    memory: Memory = field(default_factory=Memory)
    unclear_until: float = 0.0
    offline_until: float = 0.0
    full_until: float = 0.0
    own_hosts: list[RealHost] = field(default_factory=list)  # the user's machines, whatever slice they are in
    looked_into: set[str] = field(default_factory=set)  # folders whose stacks were collected, or tried to be
    saves: bool = False  # programs return 0 when they are ended by TERM
    timer_early: float = 0.0  # seconds by which the hosts' own timer is before our clock
    block_ends: float = inf  # when the provider begins to take the machines of a capacity block
    stale_until: float = 0.0
    stale_view: tuple[str, SliceState] | None = None
    created: Counter[str] = field(default_factory=Counter)  # tokens of creates that made a slice
    concluded: int = 0
    losses: int = 0
    slow: int = 0
    steps: list[Action | Wait] = field(default_factory=list)
    ending: Done | GiveUp | None = None

    # --- the loop -----------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Observe, decide, take one step. Return False when decide() ends the command."""
        mishap = self.script.pop(0) if self.script else Mishap()
        if not mishap.late:
            self._befall(mishap)
        if mishap.fault is Fault.FOREIGN:
            self._ask_another_account()
            return True
        observed = self.observe()
        step = decide(self.desired, observed, self.facts)
        if mishap.late:
            self._befall(mishap)
        if isinstance(step, Done | GiveUp):
            self.ending = step
            return False
        self.check_no_spin(step, observed)
        self.steps.append(step)
        if isinstance(step, Wait):
            if step.on is not WaitFor.PAUSE:
                self.memory.succeeded = None
            self._advance(TICK)
            if mishap.fault in CRASHES:
                self._crash(mishap)
            return True
        try:
            self._act(step, mishap)
        except Crash:
            self._crash(mishap)
        return True

    def _ask_another_account(self) -> None:
        """Another process asks in another account, which shows nothing of our slice: it must leave all as it is."""
        observed = self.observe()
        if observed.current is None:
            return
        shown = replace(observed, slice_state=SliceState.ABSENT, hosts=(), refusal=OTHER_ACCOUNT)
        step = decide(self.desired, shown, self.facts)
        assert isinstance(step, GiveUp) and step.code == OTHER_ACCOUNT.code, f"done with other credentials: {step}"
        self._crash(Mishap())

    def _crash(self, mishap: Mishap) -> None:
        self._last = None
        self._advance(3600.0 if mishap.fault is Fault.AWAY else 1.0)
        self.memory = Memory(well_at=self.now)

    _last: tuple[Action | Wait, Observed] | None = None

    def check_no_spin(self, step: Action | Wait, observed: Observed) -> None:
        """The same action on the same sight, with nothing forgotten in between, would go on for ever."""
        sight = (step, replace(observed, now=0.0, succeeded=None))
        assert isinstance(step, Wait) or self.vain is type(step) or self._last != sight, f"done twice in vain: {step}"
        self._last = sight

    # --- observing ----------------------------------------------------------------------------------------

    def observe(self) -> Observed:
        intents = tuple(self.intents[generation] for generation in sorted(self.intents))
        observed = Observed(now=self.now, intents=intents)
        intent = observed.current
        state = self._view(intent)
        hosts = self._hosts(intent) if state is SliceState.READY else ()
        self._note(state, hosts)
        of_block = intent is not None and isinstance(intent.candidate.market, CapacityBlock)
        ends = self.block_ends if of_block and state is not SliceState.UNCLEAR and self.block_ends < inf else None
        if state is SliceState.READY and intent is not None and intent.state is IntentState.ACCEPTED:
            self.memory.well_at = self.now
        memory = self.memory
        return Observed(
            now=self.now,
            intents=intents,
            slice_state=state,
            slice_ends=ends,
            hosts=hosts,
            unclear_since=memory.unclear_since,
            contact_since=memory.contact_since,
            failed_since=memory.failed_since,
            attempt=self.attempt,
            ended=tuple(self.ended),
            started=self.started,
            generation_at_open=self.opened_at,
            first_failed=memory.first_failed,
            healthy_at=memory.well_at,
            running_job=self.folder,
            outcome=self.outcome,
            failure=memory.trouble,
            succeeded=memory.succeeded,
            down_requested=self.down_requested and isinstance(self.desired, Run),
            cancel_requested=self.cancelled,
            stacks_collected=memory.stacks_of == self.folder,
        )

    @property
    def folder(self) -> str:
        if isinstance(self.desired, Cancel):
            return self.desired.folder
        return f"1-a{self.attempt}"

    def _view(self, intent: Intent | None) -> SliceState:
        if intent is None or intent.state is IntentState.PLANNED:
            return SliceState.UNCLEAR
        real = self.slices.get(intent.name)
        state = self._shown(intent.name, real.state if real is not None else SliceState.ABSENT)
        self.memory.unclear_since = (self.memory.unclear_since or self.now) if state is SliceState.UNCLEAR else None
        return state

    def _shown(self, name: str, state: SliceState) -> SliceState:
        if self.now < max(self.unclear_until, self.offline_until):
            return SliceState.UNCLEAR
        if self.now < self.stale_until and self.stale_view is not None and self.stale_view[0] == name:
            return self.stale_view[1]
        return state

    def _hosts(self, intent: Intent | None) -> tuple[HostView, ...]:
        real = self.slices.get(intent.name) if intent is not None else None
        if real is None or intent is None:
            return ()
        up = real.state is SliceState.READY and self.now >= self.offline_until
        return tuple(self._host(rank, host, up=up) for rank, host in enumerate(real.hosts))

    def _host(self, rank: int, host: RealHost, *, up: bool) -> HostView:
        ip = Text.of(f"10.0.0.{rank}")
        if not up or self.now < host.contact_from:
            return HostView(rank=rank, internal_ip=ip, contact=Contact.DOWN)
        if host.impostor:
            return HostView(rank=rank, internal_ip=ip, contact=Contact.IDENTITY)
        phase, code = self.job_on(host)
        job = host.jobs.get(self.folder)
        step, beat_age = (job.step(self.now), job.beat_age(self.now)) if job is not None else (None, None)
        return HostView(
            rank=rank,
            internal_ip=ip,
            contact=Contact.OK,
            trees=tuple(host.trees.items()),
            setup=host.setup,
            job=phase,
            exit_code=code,
            ended_by=job.ended_by if job is not None and phase in (JobPhase.FINISHED, JobPhase.LOST) else None,
            last_line="",
            step=step,
            beat_age=beat_age,
        )

    def job_on(self, host: RealHost) -> tuple[JobPhase, int | None]:
        job = host.jobs.get(self.folder)
        if job is None:
            return JobPhase.ABSENT, None
        phase = job.phase(self.now)
        return phase, job.code if phase is JobPhase.FINISHED else None

    def _note(self, state: SliceState, hosts: tuple[HostView, ...]) -> None:
        memory = self.memory
        silent = any(host.contact is not Contact.OK for host in hosts)
        memory.contact_since = (memory.contact_since or self.now) if silent else None
        own = [host for host in hosts if host.ended_by is None]
        bad = [host.rank for host in own if host.job is JobPhase.LOST or (host.exit_code or 0) != 0]
        memory.failed_since = (memory.failed_since or self.now) if bad else None
        if bad and memory.first_failed is None:
            memory.first_failed = bad[0]

    # --- acting -------------------------------------------------------------------------------------------

    def _act(self, action: Action, mishap: Mishap) -> None:
        if mishap.fault in (Fault.CRASH_BEFORE, Fault.AWAY):
            raise Crash
        self._advance(ACTION)
        try:
            self._do(action, mishap)
        except Refused as refusal:
            name = type(action).__name__
            before = self.memory.trouble
            times = before.times + 1 if before is not None and before.action == name else 1
            self.memory.trouble = replace(refusal.trouble, action=name, times=times)
            self.memory.succeeded = None
        else:
            self.memory.trouble = None
            self.memory.succeeded = count_success(self.memory.succeeded, action)
        if mishap.fault in CRASHES:
            raise Crash

    def _do(self, action: Action, mishap: Mishap) -> None:
        if type(action) is self.vain:
            if isinstance(action, EndSlice):
                self._move(action.name, IntentState.ENDING, action.cause, action.why)
            elif isinstance(action, StartSlice | StopSlice):
                self._touch(action.name)
            elif isinstance(action, CollectStacks):
                self.looked_into.add(action.job)
            return
        match action:
            case CreateSlice():
                self._create(action, mishap)
            case EndSlice():
                self._move(action.name, IntentState.ENDING, action.cause, action.why)
                self._call(mishap, lambda: self._end(action.name))
            case ForgetSlice():
                self._move(action.name, IntentState.DELETED, action.cause, action.why)
            case StopSlice():
                self._touch(action.name)
                self._call(mishap, lambda: self._become(action.name, SliceState.STOPPING, SliceState.STOPPED))
            case StartSlice():
                self._touch(action.name)
                self._call(mishap, lambda: self._become(action.name, SliceState.STARTING, SliceState.READY))
            case EndAttempt():
                self._end_attempt(
                    EndedAttempt(
                        attempt=action.attempt,
                        cause=action.cause,
                        why=action.why,
                        generation=None,
                        at=self.now,
                        rank=action.rank,
                        evidence=encode_evidence(action.step),
                    )
                )
            case NextAttempt():
                self._end_attempt(
                    EndedAttempt(
                        attempt=self.attempt,
                        cause=action.cause,
                        why=action.why,
                        generation=action.generation,
                        at=self.now,
                        exit_code=action.exit_code,
                        rank=action.rank,
                        evidence=encode_evidence(action.step),
                    )
                )
                self.attempt, self.started = action.attempt, False
                self.memory.failed_since = self.memory.first_failed = None
            case Conclude():
                self.concluded += 1
                self.outcome = Outcome(
                    status=action.status, code=action.code, what=action.what, why=action.why, next_step=action.next_step
                )
            case _:
                self._on_hosts(action, mishap)

    def _end_attempt(self, ended: EndedAttempt) -> None:
        """As the store does it: a verdict stays, and what it did not know is filled in."""
        past = next((one for one in self.ended if one.attempt == ended.attempt), None)
        if past is None:
            self.ended.append(ended)
        elif past.generation is None:
            self.ended[self.ended.index(past)] = replace(past, generation=ended.generation)

    def _create(self, action: CreateSlice, mishap: Mishap) -> None:
        spec = action.spec
        planned = Intent(
            generation=action.generation,
            name=spec.name,
            candidate=spec.candidate,
            state=IntentState.PLANNED,
            since=self.now,
            last_sent=self.now,
        )
        self.intents.setdefault(action.generation, planned)
        full = mishap.fault in (Fault.NO_CAPACITY, Fault.NO_ACCESS) or self.now < self.full_until
        full = full or (isinstance(spec.candidate.market, CapacityBlock) and self.now >= self.block_ends)
        if full and spec.name not in self.slices:
            self._move(spec.name, IntentState.REFUSED, EndCause.REFUSED, "no")
            if mishap.fault is Fault.NO_ACCESS:
                raise Refused("permission", Exit.PERMISSION, final=True)
            return
        self._call(mishap, lambda: self._make(spec), creating=True)
        self._move(spec.name, IntentState.ACCEPTED)

    def _call(self, mishap: Mishap, effect: Callable[[], None], *, creating: bool = False) -> None:
        """Send a request to the provider, which may be lost on either way; a create is never ignored."""
        if mishap.fault is Fault.CRASH_RECORDED:
            raise Crash
        if mishap.fault is Fault.CALL_LOST or self.now < self.offline_until:
            raise Refused("cloud", Exit.FAILURE)
        if mishap.fault is not Fault.IGNORED or creating:
            effect()
        if mishap.fault is Fault.CRASH_CALLED:
            raise Crash
        if mishap.fault is Fault.ANSWER_LOST:
            raise Refused("cloud", Exit.FAILURE)

    def _make(self, spec: SliceSpec) -> None:
        """The provider's side of a create: idempotent by its token, as the contract of a provider requires."""
        token = spec.token.reveal()
        if any(real.token == token for real in self.slices.values()):
            return
        self.created[token] += 1
        owned = isinstance(spec.candidate.market, Owned)
        hosts = [RealHost(saves=self.saves) for _ in range(spec.candidate.hosts)]
        if owned:
            self.own_hosts = hosts = self.own_hosts or hosts
        block = isinstance(spec.candidate.market, CapacityBlock)
        made = RealSlice(spec.name, token, hosts, turns=self.now + 10, owned=owned, born=self.now, block=block)
        self.slices[spec.name] = made

    def _end(self, name: str) -> None:
        real = self.slices.get(name)
        if real is not None and real.owned:
            heard = [
                host
                for host in real.hosts
                if self.now >= max(host.contact_from, self.offline_until) and not host.impostor
            ]
            assert not any(host.running(self.now) for host in heard), "the user's machines are left with our program"
        if name in self.slices and self.slices[name].state is not SliceState.ENDING:
            self._become(name, SliceState.ENDING, None)

    def _become(self, name: str, state: SliceState, into: SliceState | None) -> None:
        if name in self.slices:
            real = self.slices[name]
            real.state, real.into, real.turns = state, into, self.now + 10
            for host in real.hosts:
                if not real.owned:
                    host.power_off(self.now)

    def _on_hosts(self, action: HostAction, mishap: Mishap) -> None:
        if isinstance(action, StartJob):
            self.started = True
        if isinstance(action, CollectStacks):
            self.memory.stacks_of = action.job
            self.looked_into.add(action.job)
        if mishap.fault is Fault.CRASH_RECORDED:
            raise Crash
        real = self.slices.get(f"{self.desired.cluster}-{max(self.intents)}")
        unlucky = action.ranks[mishap.number % len(action.ranks)]
        lost = failed = False
        for rank in action.ranks:
            host = real.hosts[rank] if real is not None and real.state is SliceState.READY else None
            unheard = host is None or self.now < max(host.contact_from, self.offline_until) or host.impostor
            if host is None or unheard or (rank == unlucky and mishap.fault is Fault.STEP_LOST):
                lost = True
            elif rank == unlucky and mishap.fault is Fault.STEP_FAILS:
                failed = True
            elif rank == unlucky and mishap.fault is Fault.CRASH_CALLED:
                raise Crash
            else:
                failed = not self._on_host(host, action) or failed
        if isinstance(action, CollectStacks):
            return  # what a host does not give is noted, not waited for
        if failed:
            raise Refused("setup-failed", Exit.SETUP_FAILED)
        if lost:
            raise Refused("host-lost", Exit.HOST_LOST, lost=True)

    def _on_host(self, host: RealHost, action: HostAction) -> bool:
        match action:
            case ArmTimer():
                host.trees[TIMER_LABEL] = action.digest
            case SyncTree() | FetchMount():
                host.trees[action.label] = action.digest
            case RunSetup():
                host.setup = action.digest
            case StartJob():
                others = host.running(self.now) - {action.job}
                assert not others, f"{action.job} is started where {others} runs"
                host.jobs.setdefault(action.job, Program(self.now, self.now + PROGRAM))
            case StopJob():
                return host.stop(action.job, self.now, action.ended_by)
            case CollectStacks():
                pass
        return True

    # --- the record ---------------------------------------------------------------------------------------

    def _touch(self, name: str) -> None:
        intent = self._intent(name)
        self.intents[intent.generation] = replace(intent, last_sent=self.now)

    def _move(self, name: str, state: IntentState, cause: EndCause | None = None, why: str = "") -> None:
        intent = self._intent(name)
        since = intent.since if intent.state is state else self.now
        moved = replace(intent, state=state, since=since, last_sent=self.now)
        if state is IntentState.ACCEPTED and moved.billed_from is None:
            moved = replace(moved, billed_from=self.now)
        if state is IntentState.DELETED:
            moved = replace(moved, billed_until=self.now)
        self.intents[intent.generation] = moved if cause is None else replace(moved, cause=cause, why=why)

    def _intent(self, name: str) -> Intent:
        return next(intent for intent in self.intents.values() if intent.name == name)

    # --- what happens by itself ---------------------------------------------------------------------------

    def _advance(self, seconds: float) -> None:
        self.now += seconds
        for real in list(self.slices.values()):
            self._by_itself(real)
            if real.turns and self.now >= real.turns:
                if real.into is None:
                    del self.slices[real.name]
                else:
                    real.state, real.turns = real.into, 0.0

    def _by_itself(self, real: RealSlice) -> None:
        """A preemption that was announced, and the timer that every armed host has."""
        if real.preempted_at is not None and self.now >= real.preempted_at and real.state is SliceState.READY:
            real.preempted_at = None
            self._become(real.name, SliceState.PREEMPTED, None)
        hours = self.desired.limits.hours if isinstance(self.desired, Run) else None
        armed = any(TIMER_LABEL in host.trees for host in real.hosts)
        born = min(
            (intent.billed_from for intent in self.intents.values() if intent.billed_from is not None),
            default=real.born,
        )
        if hours is not None and armed and self.now >= born + hours * 3600.0 - self.timer_early:
            self._reach_limit(real)
        if real.block and self.now >= self.block_ends:
            self._end(real.name)

    def _reach_limit(self, real: RealSlice) -> None:
        """Let the timer end the programs, and a moment later the machines, unless they are the user's own."""
        real.timed_out = real.timed_out or self.now
        for host in real.hosts:
            for folder in host.running(self.now):
                host.stop(folder, self.now, EndedBy.LIMIT)
        if not real.owned and self.now >= real.timed_out + TIMER_GRACE:
            self._end(real.name)

    def _befall(self, mishap: Mishap) -> None:
        fault, number = mishap.fault, mishap.number
        self.losses += fault in LOSSES
        self.slow += fault in DELAYS
        if fault is Fault.OFFLINE:
            self.offline_until = self.now + 16.0 * number
        elif fault is Fault.FULL:
            self.full_until = self.now + 40.0 * number
        elif fault is Fault.UNCLEAR:
            self.unclear_until = self.now + 8.0 * number
        elif fault is Fault.DOWN_REQUESTED:
            self.down_requested = True
        elif fault is Fault.CANCELLED:
            self.cancelled = True
        for real in self.slices.values():
            if fault is Fault.STALE and real.state is not SliceState.ENDING:
                self.stale_view, self.stale_until = (real.name, real.state), self.now + 4.0 * number
            elif fault is Fault.SLOW:
                real.turns += 60.0 if real.turns else 0.0
            elif fault in (Fault.HUNG_ALIKE, Fault.HUNG_APART, Fault.ALL_SILENT, Fault.NOTICE):
                self._befall_all(real, mishap)
            elif real.owned and fault in (Fault.PREEMPTED, Fault.FAILED, Fault.ENDED_ELSEWHERE, Fault.STOPPED):
                pass  # the user's own machines are never preempted
            elif fault is Fault.STOPPED and real.state is SliceState.READY:
                self._become(real.name, SliceState.STOPPING, SliceState.STOPPED)
            elif fault is Fault.PREEMPTED and real.state is SliceState.READY:
                self._become(real.name, SliceState.PREEMPTED, None)
                real.turns += 60.0  # first it is shown as preempted, then it is absent
            elif fault is Fault.FAILED and real.state is not SliceState.ENDING:
                self._become(real.name, SliceState.FAILED, None)
                real.turns = 0.0  # it stays until it is ended
            elif fault is Fault.ENDED_ELSEWHERE:
                self._end(real.name)
            else:
                self._befall_host(real.hosts[number % len(real.hosts)], mishap)

    def _befall_all(self, real: RealSlice, mishap: Mishap) -> None:
        """Apply a fault to all hosts of a slice."""
        for rank, host in enumerate(real.hosts):
            if mishap.fault is Fault.ALL_SILENT:
                host.contact_from = max(host.contact_from, self.now + 12.0 * mishap.number)
            for job in host.jobs.values():
                if mishap.fault is Fault.NOTICE:
                    job.end(self.now, Exit.PREEMPTED)
                elif mishap.fault is not Fault.ALL_SILENT:
                    slow = mishap.fault is Fault.HUNG_APART and rank == mishap.number % len(real.hosts)
                    job.hang(self.now, 1 if slow else 0)
        if mishap.fault is Fault.NOTICE and not real.owned and real.state is SliceState.READY:
            real.preempted_at = self.now + WARNING

    def _befall_host(self, host: RealHost, mishap: Mishap) -> None:
        match mishap.fault:
            case Fault.SILENT:
                host.contact_from = max(host.contact_from, self.now + 7.0 * mishap.number)
            case Fault.DEAD:
                host.contact_from = float("inf")
            case Fault.REBOOT:
                host.contact_from = max(host.contact_from, self.now + 10)
                host.power_off(self.now)
            case Fault.UNKILLABLE:
                host.unkillable = bool(host.running(self.now))
            case Fault.IMPOSTOR:
                host.impostor = True
            case Fault.PROGRAM_ENDS:
                code = CODES[mishap.number % len(CODES)]
                for job in host.jobs.values():
                    job.end(self.now, code)
            case _:
                pass


def run_to_the_end(simulation: SimulatedCluster, most: int) -> Done | GiveUp:
    """Let it run. AssertionError when it has not ended after `most` turns."""
    for _ in range(most):
        if not simulation.turn():
            assert simulation.ending is not None
            return simulation.ending
    raise AssertionError(f"not over after {most} turns; the last: {simulation.steps[-3:]}")


def take_down(simulation: SimulatedCluster) -> Done | GiveUp:
    """The user types `orch down`, with nothing going wrong any more."""
    simulation.script.clear()
    simulation.unclear_until = simulation.stale_until = simulation.offline_until = 0.0
    for host in simulation.own_hosts:
        host.unkillable = host.impostor = False  # the user has ended by hand what orch could not, and has the host back
        host.contact_from = min(host.contact_from, simulation.now)
    simulation.memory = Memory(well_at=simulation.now)
    simulation.desired = Down(simulation.desired.cluster, simulation.desired.budgets)
    return run_to_the_end(simulation, 200)
