"""The imagined world: what would be so if each step succeeded. A plan is decide() walked through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import (
    Action,
    Conclude,
    CreateSlice,
    EndSlice,
    FetchMount,
    ForgetSlice,
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
from orchestrator.plan.desired import Desired
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, Ended, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import SliceState
from orchestrator.values import Unknown, text

MOST_STEPS = 1000  # far above any real plan; a plan that does not end is a fault of ours


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, in order, and how it would end. now: the clock it was made at (see Wait.until)."""

    desired: Desired
    steps: tuple[Action | Wait, ...]
    ending: Done | GiveUp
    now: float = 0.0

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step for step in self.steps if not isinstance(step, Wait))


def make_plan(desired: Desired, observed: Observed, facts: Facts) -> Plan:
    """Walk decide() through the imagined world, starting from what is known. Pure."""
    steps: list[Action | Wait] = []
    observed = _opening(observed)
    for _ in range(MOST_STEPS):
        step = decide(desired, observed, facts)
        if isinstance(step, Done | GiveUp):
            return Plan(desired, tuple(steps), step, observed.now)
        steps.append(step)
        observed = imagine(observed, step)
    raise RuntimeError(f"the plan does not end; last step: {steps[-1]}")


def _opening(observed: Observed) -> Observed:
    """What the first real look would have as well: the command begins now, and READY means that there are hosts."""
    observed = replace(observed, well_at=observed.now if observed.well_at is None else observed.well_at)
    intent = observed.current
    if intent is None or observed.slice_state is not SliceState.READY or observed.hosts:
        return observed
    return replace(observed, hosts=_new_hosts(intent))


def imagine(observed: Observed, step: Action | Wait) -> Observed:
    """The world after a step that succeeded."""
    match step:
        case Wait():
            return _after_wait(observed, step)
        case CreateSlice() | EndSlice() | ForgetSlice() | StopSlice() | StartSlice():
            return _after_slice_action(observed, step)
        case NextAttempt():
            ended = Ended(observed.attempt, step.cause, step.why, step.generation)
            hosts = tuple(replace(host, job=JobPhase.ABSENT, exit_code=None) for host in observed.hosts)
            past = (*observed.ended, ended)
            return replace(observed, attempt=step.attempt, ended=past, started=False, hosts=hosts, first_failed=None)
        case Conclude():
            outcome = Outcome(step.status, step.code, step.what, step.why, step.next_step)
            return replace(observed, outcome=outcome)
        case _:
            return _after_host_action(observed, step)


def _after_wait(observed: Observed, wait: Wait) -> Observed:
    match wait.on:
        case WaitFor.SLICE:
            return _settled(observed)
        case WaitFor.CONTACT:
            hosts = tuple(replace(host, contact=Contact.OK) for host in observed.hosts)
        case WaitFor.JOB | WaitFor.GRACE:
            hosts = tuple(_finished(host) for host in observed.hosts)
    return replace(observed, hosts=hosts)


def _finished(host: HostView) -> HostView:
    return replace(host, job=JobPhase.FINISHED, exit_code=0) if host.job is JobPhase.RUNNING else host


def _settled(observed: Observed) -> Observed:
    """The provider has done what it was at."""
    after = {
        SliceState.CREATING: SliceState.READY,
        SliceState.STARTING: SliceState.READY,
        SliceState.UNCLEAR: SliceState.READY,
        SliceState.STOPPING: SliceState.STOPPED,
        SliceState.ENDING: SliceState.ABSENT,
    }
    state = after.get(observed.slice_state, observed.slice_state)
    intent = observed.current
    if intent is not None and intent.state is IntentState.ENDING:
        state = SliceState.ABSENT
    if state is not SliceState.READY or intent is None:
        return replace(observed, slice_state=state, hosts=())
    return replace(observed, slice_state=state, hosts=observed.hosts or _new_hosts(intent))


def _new_hosts(intent: Intent) -> tuple[HostView, ...]:
    return tuple(
        HostView(rank, text(Unknown(f"address of host {rank}, known after create")))
        for rank in range(intent.candidate.hosts)
    )


def _after_slice_action(
    observed: Observed, action: CreateSlice | EndSlice | ForgetSlice | StopSlice | StartSlice
) -> Observed:
    match action:
        case CreateSlice():
            others = tuple(intent for intent in observed.intents if intent.generation != action.generation)
            made = Intent(
                action.generation, action.spec.name, action.spec.candidate, IntentState.ACCEPTED, observed.now
            )
            return replace(observed, intents=(*others, made), slice_state=SliceState.CREATING, hosts=())
        case EndSlice():
            intents = _moved(observed, action.name, IntentState.ENDING, action.cause, action.why)
            return replace(observed, intents=intents, slice_state=SliceState.ENDING, hosts=())
        case ForgetSlice():
            intents = _moved(observed, action.name, IntentState.GONE, action.cause, action.why)
            return replace(observed, intents=intents, slice_state=SliceState.UNCLEAR, hosts=())
        case StopSlice():
            return replace(observed, slice_state=SliceState.STOPPING)
        case StartSlice():
            return replace(observed, slice_state=SliceState.STARTING)


def _moved(observed: Observed, name: str, state: IntentState, cause: EndCause, why: str) -> tuple[Intent, ...]:
    return tuple(
        replace(intent, state=state, cause=cause, why=why, since=observed.now) if intent.name == name else intent
        for intent in observed.intents
    )


def _after_host_action(observed: Observed, action: SyncTree | FetchMount | RunSetup | StartJob | StopJob) -> Observed:
    ranks = set(action.ranks)
    hosts = tuple(_after_one(host, action) if host.rank in ranks else host for host in observed.hosts)
    return replace(observed, hosts=hosts, started=observed.started or isinstance(action, StartJob))


def _after_one(host: HostView, action: SyncTree | FetchMount | RunSetup | StartJob | StopJob) -> HostView:
    match action:
        case SyncTree() | FetchMount():
            others = tuple(held for held in host.trees if held[0] != action.label)
            return replace(host, trees=(*others, (action.label, action.digest)))
        case RunSetup():
            return replace(host, setup=action.digest)
        case StartJob():
            return replace(host, job=JobPhase.RUNNING)
        case StopJob():
            return replace(host, job=JobPhase.FINISHED, exit_code=143)
