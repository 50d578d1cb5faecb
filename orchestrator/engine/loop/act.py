"""Performing one action. A failure becomes a Trouble, which `decide` sees in the next observation."""

from __future__ import annotations

import time

from orchestrator.clock import seconds_asleep
from orchestrator.engine.loop import host_actions, slice_actions
from orchestrator.engine.loop.session import Session
from orchestrator.errors import (
    AccessError,
    BudgetError,
    CloudError,
    ConflictError,
    CredentialsError,
    HostError,
    IdentityMismatch,
    OrchError,
    UserError,
)
from orchestrator.hosts import HostOutcome
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
from orchestrator.plan.observed import ActionFailure, EndedAttempt, Outcome, encode_evidence
from orchestrator.plan.repeated import count_success
from orchestrator.retries import ENGINE_STEP, chance_of

_AWAKE = 1.0  # seconds: the two clocks are not read in the same instant


def act(session: Session, action: Action) -> None:
    """Perform the action.

    Raises only what must stop the loop: a lost lease, credentials that a provider does not accept, a defect of orch,
    Ctrl-C.
    """
    session.narrator.starting(action)
    began, asleep = time.monotonic(), seconds_asleep()
    try:
        carried_out = _dispatch(session, action)
    except (ConflictError, CredentialsError):
        raise
    except OrchError as error:
        _record_failure(session, action, error)
    else:
        if not _ends_refused_create(session.memory.failure, action):
            session.memory.failure = None
        session.memory.succeeded = count_success(session.memory.succeeded, action) if carried_out else None
        if carried_out:
            session.narrator.finished(action, time.monotonic() - began)
        else:
            session.narrator.failed(action, ())
    if isinstance(action, HostAction) and seconds_asleep() - asleep < _AWAKE:
        session.memory.looked_at = session.now()  # it was busy with the hosts, for minutes perhaps, until just now


def _ends_refused_create(failure: ActionFailure | None, action: Action) -> bool:
    """Return whether the action only ends what a finally refused create may have made; its refusal ends the command."""
    refused = failure is not None and failure.final and failure.action == CreateSlice.__name__
    return refused and isinstance(action, EndSlice | ForgetSlice)


def _dispatch(session: Session, action: Action) -> bool:
    """Perform the action and return whether it was carried out: a provider may refuse a create request."""
    match action:
        case CreateSlice():
            return slice_actions.create_slice(session, action)
        case EndSlice():
            slice_actions.end_slice(session, action)
        case ForgetSlice():
            slice_actions.close_slice_record(session, action)
        case StopSlice():
            slice_actions.stop_slice(session, action)
        case StartSlice():
            slice_actions.start_slice(session, action)
        case EndAttempt():
            _end_attempt(session, action)
        case NextAttempt():
            _next_attempt(session, action)
        case Conclude():
            _conclude(session, action)
        case _:
            _dispatch_to_hosts(session, action)
    return True


def _dispatch_to_hosts(session: Session, action: HostAction) -> None:
    match action:
        case SyncTree():
            host_actions.sync_tree(session, action)
        case FetchMount():
            host_actions.fetch_mount(session, action)
        case RunSetup():
            host_actions.run_setup(session, action)
        case StartJob():
            host_actions.start_job(session, action)
        case StopJob():
            host_actions.stop_job(session, action)
        case ArmTimer():
            host_actions.arm_timer(session, action)
        case CollectStacks():
            host_actions.collect_stacks(session, action)


def _next_attempt(session: Session, action: NextAttempt) -> None:
    job = session.job
    assert job is not None  # noqa: S101  # only a Run makes attempts, and a Run has a job
    current = session.store.job(session.cluster, job.id)
    ended = EndedAttempt(
        attempt=current.attempt,
        cause=action.cause,
        why=action.why,
        generation=action.generation,
        at=session.now(),
        exit_code=action.exit_code,
        rank=action.rank,
        evidence=encode_evidence(action.step),
    )
    session.store.next_attempt(session.cluster, job.id, ended, action.attempt, lease=session.keeper.lease)
    session.memory.failed_since = None
    session.memory.first_failed = None
    session.memory.over_budget.clear()


def _end_attempt(session: Session, action: EndAttempt) -> None:
    job = session.job
    assert job is not None  # noqa: S101  # only a Run makes attempts, and a Run has a job
    verdict = EndedAttempt(
        attempt=action.attempt,
        cause=action.cause,
        why=action.why,
        at=session.now(),
        rank=action.rank,
        evidence=encode_evidence(action.step),
    )
    session.store.end_attempt(session.cluster, job.id, verdict, lease=session.keeper.lease)


def _conclude(session: Session, action: Conclude) -> None:
    job = session.job
    assert job is not None  # noqa: S101  # only a Run is concluded
    outcome = Outcome(
        status=action.status, code=action.code, what=action.what, why=action.why, next_step=action.next_step
    )
    attempt, seen = session.store.job(session.cluster, job.id).attempt, session.memory.host_run
    run = seen[1] if seen is not None and seen[0] == f"{job.id}-a{attempt}" else None
    session.store.record_outcome(session.cluster, job.id, outcome, lease=session.keeper.lease, run=run)


def _record_failure(session: Session, action: Action, error: OrchError) -> None:
    before = session.memory.failure
    step = type(action).__name__
    times = before.times + 1 if before is not None and before.action == step else 1
    outcomes: tuple[HostOutcome, ...] = host_actions.outcomes_of(error)
    session.memory.succeeded = None
    session.memory.failure = ActionFailure(
        action=step,
        connection_lost=isinstance(error, HostError) and not isinstance(error, IdentityMismatch),
        what=error.what,
        why=error.why,
        code=error.code,
        status=int(error.exit_status),
        times=times,
        next_step=NextStep.parse(error.next_step),
        final=isinstance(error, AccessError | BudgetError | UserError),
    )
    if outcomes:
        session.memory.outcomes = outcomes
    session.store.event(session.cluster.qualified_name, "trouble", f"{step}: {error}")
    session.narrator.failed(action, outcomes)
    if isinstance(error, CloudError) and (before is None or (before.what, before.why) != (error.what, error.why)):
        session.narrator.note(f"  {error}")
    if isinstance(error, CloudError):  # it is busy or broken: the next try must not follow immediately
        session.services.clock.sleep(_backoff_seconds(f"{session.cluster.uid}-{step}", times))


def _backoff_seconds(seed: str, times: int) -> float:
    """Return the next pause: exponential backoff with deterministic jitter from a hash of `seed`."""
    return ENGINE_STEP.pause(times, chance_of(f"{seed}-{times}"))
