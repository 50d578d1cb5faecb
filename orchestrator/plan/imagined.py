"""The imagined world: what would be so if each step succeeded. A plan is decide() walked through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.hosts import JobPhase
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
from orchestrator.plan.decide_hosts import TIMER
from orchestrator.plan.desired import Desired
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, Ended, HostView, Intent, IntentState, Observed, Outcome, noted
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import CapacityBlock, SliceState
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
    began = observed.now
    for _ in range(MOST_STEPS):
        step = decide(desired, observed, facts)
        if isinstance(step, Done | GiveUp):
            return Plan(desired, tuple(steps), step, began)
        steps.append(_from(began, step, observed.now))
        observed = imagine(observed, step)
    raise RuntimeError(f"the plan does not end; last step: {steps[-1]}")


def _from(began: float, step: Action | Wait, now: float) -> Action | Wait:
    """A wait after an imagined pause, told as if it began with the plan: how long it may last stays what it is."""
    if not isinstance(step, Wait) or step.until is None or now == began:
        return step
    return replace(step, until=step.until - (now - began), due=None if step.due is None else step.due - (now - began))


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
            blame = (step.exit_code, step.rank, noted(step.step))
            ended = Ended(observed.attempt, step.cause, step.why, step.generation, observed.now, *blame)
            if (verdict := observed.condemned) is not None:  # it stays, and what it did not know is filled in
                ended = replace(verdict, generation=step.generation)
            hosts = tuple(replace(host, job=JobPhase.ABSENT, exit_code=None) for host in observed.hosts)
            past = (*(one for one in observed.ended if one.attempt != observed.attempt), ended)
            anew = replace(observed, attempt=step.attempt, ended=past, started=False, hosts=hosts)
            return replace(anew, first_failed=None, failed_since=None, stacks=False)
        case EndAttempt():
            verdict = Ended(step.attempt, step.cause, step.why, None, observed.now, None, step.rank, noted(step.step))
            return replace(observed, ended=(*observed.ended, verdict))
        case Conclude():
            outcome = Outcome(step.status, step.code, step.what, step.why, step.next_step)
            return replace(observed, outcome=outcome)
        case _:
            return _after_host_action(observed, step)


def _after_wait(observed: Observed, wait: Wait) -> Observed:
    match wait.on:
        case WaitFor.PAUSE:
            return replace(observed, now=observed.now if wait.until is None else wait.until)
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
    observed = replace(observed, slice_state=state, slice_reason="")
    if state is not SliceState.READY or intent is None:
        return replace(observed, hosts=())
    return replace(observed, hosts=observed.hosts or _new_hosts(intent))


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
            made = replace(made, born=observed.now)
            # Only the provider knows when a block begins, and when the new machines are taken back.
            block = isinstance(made.candidate.market, CapacityBlock)
            reason = "its capacity block may have to begin first" if block else ""
            observed = replace(observed, slice_reason=reason, slice_until=None, slice_ends=None)
            return replace(observed, intents=(*others, made), slice_state=SliceState.CREATING, hosts=())
        case EndSlice():
            intents = _moved(observed, action.name, IntentState.ENDING, action.cause, action.why)
            return replace(observed, intents=intents, slice_state=SliceState.ENDING, slice_reason="", hosts=())
        case ForgetSlice():
            moved = _moved(observed, action.name, IntentState.GONE, action.cause, action.why)
            intents = tuple(replace(one, gone=observed.now) if one.name == action.name else one for one in moved)
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


def _after_host_action(observed: Observed, action: HostAction) -> Observed:
    ranks = set(action.ranks)
    hosts = tuple(_after_one(host, action) if host.rank in ranks else host for host in observed.hosts)
    if isinstance(action, CollectStacks):
        return replace(observed, stacks=True)
    return replace(observed, hosts=hosts, started=observed.started or isinstance(action, StartJob))


def _after_one(host: HostView, action: HostAction) -> HostView:
    match action:
        case ArmTimer():
            others = tuple(held for held in host.trees if held[0] != TIMER)
            return replace(host, trees=(*others, (TIMER, action.digest)))
        case SyncTree() | FetchMount():
            others = tuple(held for held in host.trees if held[0] != action.label)
            return replace(host, trees=(*others, (action.label, action.digest)))
        case RunSetup():
            return replace(host, setup=action.digest)
        case StartJob():
            return replace(host, job=JobPhase.RUNNING, step=None, beat_age=None)
        case StopJob():
            return replace(host, job=JobPhase.FINISHED, exit_code=143)
        case CollectStacks():
            return host
