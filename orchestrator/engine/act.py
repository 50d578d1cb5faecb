"""Doing one action, for real. What fails becomes Trouble, which decide() sees in the next look."""

from __future__ import annotations

import hashlib
import time

from orchestrator.engine import host_actions, slice_actions
from orchestrator.engine.session import Session
from orchestrator.errors import (
    AccessError,
    CloudError,
    ConflictError,
    HostError,
    IdentityMismatch,
    OrchError,
    UserError,
)
from orchestrator.hosts import HostOutcome
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
from orchestrator.plan.observed import Ended, Outcome, Trouble, noted

FIRST_PAUSE = 1.0  # seconds after an answer of the cloud that says nothing; doubles with each further one
LONGEST_PAUSE = 30.0


def act(session: Session, action: Action) -> None:
    """Do it. Raises only what must stop the loop: a lost lease, a fault of ours, Ctrl-C."""
    session.narrator.starting(action)
    began = time.monotonic()
    try:
        _do(session, action)
    except ConflictError:
        raise
    except OrchError as error:
        _remember(session, action, error)
    else:
        session.memory.trouble = None
        session.narrator.finished(action, time.monotonic() - began)


def _do(session: Session, action: Action) -> None:
    match action:
        case CreateSlice():
            slice_actions.create(session, action)
        case EndSlice():
            slice_actions.end(session, action)
        case ForgetSlice():
            slice_actions.forget(session, action)
        case StopSlice():
            slice_actions.stop(session, action)
        case StartSlice():
            slice_actions.start(session, action)
        case EndAttempt():
            _end_attempt(session, action)
        case NextAttempt():
            _next_attempt(session, action)
        case Conclude():
            _conclude(session, action)
        case _:
            _do_on_hosts(session, action)


def _do_on_hosts(session: Session, action: HostAction) -> None:
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
    blame = (action.exit_code, action.rank, noted(action.step))
    ended = Ended(current.attempt, action.cause, action.why, action.generation, session.now(), *blame)
    session.store.next_attempt(session.cluster, job.id, ended, action.attempt, lease=session.keeper.lease)
    session.memory.failed_since = None
    session.memory.first_failed = None


def _end_attempt(session: Session, action: EndAttempt) -> None:
    job = session.job
    assert job is not None  # noqa: S101  # only a Run makes attempts, and a Run has a job
    blame = (None, action.rank, noted(action.step))
    verdict = Ended(action.attempt, action.cause, action.why, None, session.now(), *blame)
    session.store.end_attempt(session.cluster, job.id, verdict, lease=session.keeper.lease)


def _conclude(session: Session, action: Conclude) -> None:
    job = session.job
    assert job is not None  # noqa: S101  # only a Run is concluded
    outcome = Outcome(action.status, action.code, action.what, action.why, action.next_step)
    session.store.conclude(session.cluster, job.id, outcome, lease=session.keeper.lease)


def _remember(session: Session, action: Action, error: OrchError) -> None:
    before = session.memory.trouble
    step = type(action).__name__
    times = before.times + 1 if before is not None and before.step == step else 1
    outcomes: tuple[HostOutcome, ...] = host_actions.outcomes_of(error)
    session.memory.trouble = Trouble(
        step=step,
        lost=isinstance(error, HostError) and not isinstance(error, IdentityMismatch),
        what=error.what,
        why=error.why,
        code=error.code,
        status=int(error.exit_status),
        times=times,
        next_step=error.next_step,
        final=isinstance(error, AccessError | UserError),
    )
    if outcomes:
        session.memory.outcomes = outcomes
    session.store.event(session.cluster.name, "trouble", f"{step}: {error}")
    session.narrator.failed(action, outcomes)
    if isinstance(error, CloudError):  # it is busy or broken: the next try must not come at once
        session.world.clock.sleep(_pause(f"{session.cluster.uid}-{step}", times))


def _pause(seed: str, times: int) -> float:
    """With a share of chance, so that many commands do not come back together; the same for the same command."""
    longest = min(FIRST_PAUSE * 2.0 ** min(times - 1, 10), LONGEST_PAUSE)
    chance = int.from_bytes(hashlib.sha256(f"{seed}-{times}".encode()).digest()[:4], "big") / 2**32
    return longest * (0.75 + 0.5 * chance)
