"""Make a plan: call decide() again and again, assuming that each step succeeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.exits import Exit
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
from orchestrator.plan.decide_hosts import TIMER_LABEL
from orchestrator.plan.decide_slice import refuse_command
from orchestrator.plan.desired import Desired, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import (
    Contact,
    EndedAttempt,
    HostView,
    Intent,
    IntentState,
    Observed,
    Outcome,
    encode_evidence,
)
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import CapacityBlock, SliceState
from orchestrator.values import Unknown, to_text

MOST_STEPS = 1000  # far above any real plan; a plan without end is a bug in orch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps that would be taken, in order, and how they would end.

    Attributes:
        now: Epoch seconds at which the plan was made; see Wait.until.
    """

    desired: Desired
    steps: tuple[Action | Wait, ...]
    ending: Done | GiveUp
    now: float

    @property
    def actions(self) -> tuple[Action, ...]:
        """The steps without the waits."""
        return tuple(step for step in self.steps if not isinstance(step, Wait))


def make_plan(desired: Desired, observed: Observed, facts: Facts) -> Plan:
    """Return the plan for `desired`, starting from the known state. Pure."""
    steps: list[Action | Wait] = []
    observed = _opening(observed)
    began = observed.now
    if isinstance(desired, Run) and (refused := refuse_command(desired, observed, facts)) is not None:
        return Plan(desired=desired, steps=(), ending=refused, now=began)
    for _ in range(MOST_STEPS):
        step = decide(desired, observed, facts)
        if isinstance(step, Done | GiveUp):
            return Plan(desired=desired, steps=tuple(steps), ending=step, now=began)
        steps.append(_as_of_start(began, step, observed.now))
        observed = assume_success(observed, step)
    raise RuntimeError(f"the plan does not end; last step: {steps[-1]}")


def _as_of_start(began: float, step: Action | Wait, now: float) -> Action | Wait:
    """Shift a wait that follows an assumed pause to the start of the plan; its length stays the same."""
    if not isinstance(step, Wait) or step.until is None or now == began:
        return step
    return replace(step, until=step.until - (now - began), due=None if step.due is None else step.due - (now - began))


def _opening(observed: Observed) -> Observed:
    """Add what the first real observation has: the command starts now, and a READY slice has hosts."""
    observed = replace(observed, healthy_at=observed.now if observed.healthy_at is None else observed.healthy_at)
    intent = observed.current
    if intent is None or observed.slice_state is not SliceState.READY or observed.hosts:
        return observed
    return replace(observed, hosts=_new_hosts(intent))


def assume_success(observed: Observed, step: Action | Wait) -> Observed:
    """Return the state after a step that succeeded."""
    match step:
        case Wait():
            return _after_wait(observed, step)
        case CreateSlice() | EndSlice() | ForgetSlice() | StopSlice() | StartSlice():
            return _after_slice_action(observed, step)
        case NextAttempt():
            ended = EndedAttempt(
                attempt=observed.attempt,
                cause=step.cause,
                why=step.why,
                generation=step.generation,
                at=observed.now,
                exit_code=step.exit_code,
                rank=step.rank,
                evidence=encode_evidence(step.step),
            )
            if (verdict := observed.pending_end) is not None:  # kept, with the generation filled in
                ended = replace(verdict, generation=step.generation)
            hosts = tuple(replace(host, job=JobPhase.ABSENT, exit_code=None, ended_by=None) for host in observed.hosts)
            past = (*(one for one in observed.ended if one.attempt != observed.attempt), ended)
            fresh = replace(observed, attempt=step.attempt, ended=past, started=False, hosts=hosts)
            return replace(fresh, first_failed=None, failed_since=None, stacks_collected=False)
        case EndAttempt():
            verdict = EndedAttempt(
                attempt=step.attempt,
                cause=step.cause,
                why=step.why,
                generation=None,
                at=observed.now,
                exit_code=None,
                rank=step.rank,
                evidence=encode_evidence(step.step),
            )
            return replace(observed, ended=(*observed.ended, verdict))
        case Conclude():
            outcome = Outcome(
                status=step.status, code=step.code, what=step.what, why=step.why, next_step=step.next_step
            )
            return replace(observed, outcome=outcome)
        case _:
            return _after_host_action(observed, step)


def _after_wait(observed: Observed, wait: Wait) -> Observed:
    match wait.on:
        case WaitFor.PAUSE:
            return replace(observed, now=observed.now if wait.until is None else wait.until)
        case WaitFor.SLICE:
            return _after_provider(observed)
        case WaitFor.CONTACT:
            hosts = tuple(replace(host, contact=Contact.OK) for host in observed.hosts)
        case WaitFor.JOB | WaitFor.GRACE:
            hosts = tuple(_finished(host) for host in observed.hosts)
    return replace(observed, hosts=hosts)


def _finished(host: HostView) -> HostView:
    return replace(host, job=JobPhase.FINISHED, exit_code=0) if host.job is JobPhase.RUNNING else host


def _after_provider(observed: Observed) -> Observed:
    """Return the state after the provider finished its current operation."""
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
        HostView(
            rank=rank,
            internal_ip=to_text(Unknown(f"address of host {rank}, known after create", after_create=True, host=rank)),
        )
        for rank in range(intent.candidate.hosts)
    )


def _after_slice_action(
    observed: Observed, action: CreateSlice | EndSlice | ForgetSlice | StopSlice | StartSlice
) -> Observed:
    match action:
        case CreateSlice():
            others = tuple(intent for intent in observed.intents if intent.generation != action.generation)
            made = Intent(
                generation=action.generation,
                name=action.spec.name,
                candidate=action.spec.candidate,
                state=IntentState.ACCEPTED,
                since=observed.now,
            )
            made = replace(made, billed_from=observed.now)
            # Only the provider knows when a block starts, and when the new machines are taken back.
            block = isinstance(made.candidate.market, CapacityBlock)
            reason = "its capacity block may have to start first" if block else ""
            observed = replace(observed, slice_reason=reason, slice_until=None, slice_ends=None)
            return replace(observed, intents=(*others, made), slice_state=SliceState.CREATING, hosts=())
        case EndSlice():
            intents = _moved(observed, action.name, IntentState.ENDING, action.cause, action.why)
            return replace(observed, intents=intents, slice_state=SliceState.ENDING, slice_reason="", hosts=())
        case ForgetSlice():
            moved = _moved(observed, action.name, IntentState.DELETED, action.cause, action.why)
            closed = {action.name: observed.now}
            intents = tuple(replace(one, billed_until=closed.get(one.name, one.billed_until)) for one in moved)
            lost = Outcome(status=Exit.HOST_LOST, code="host-lost", what=action.jobs_end) if action.jobs_end else None
            outcome = observed.outcome or lost
            return replace(observed, intents=intents, slice_state=SliceState.UNCLEAR, hosts=(), outcome=outcome)
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
        return replace(observed, stacks_collected=True)
    return replace(observed, hosts=hosts, started=observed.started or isinstance(action, StartJob))


def _after_one(host: HostView, action: HostAction) -> HostView:
    match action:
        case ArmTimer():
            others = tuple(held for held in host.trees if held[0] != TIMER_LABEL)
            return replace(host, trees=(*others, (TIMER_LABEL, action.digest)))
        case SyncTree() | FetchMount():
            others = tuple(held for held in host.trees if held[0] != action.label)
            return replace(host, trees=(*others, (action.label, action.digest)))
        case RunSetup():
            return replace(host, setup=action.digest)
        case StartJob():
            return replace(host, job=JobPhase.RUNNING, step=None, beat_age=None)
        case StopJob():
            return replace(host, job=JobPhase.FINISHED, exit_code=143, ended_by=action.ended_by)
        case CollectStacks():
            return host
