"""Waiting, as cheaply as possible, with progress about once a second."""

from __future__ import annotations

import time

from orchestrator.engine.loop.admission import have_members_changed
from orchestrator.engine.loop.follow import Follower
from orchestrator.engine.loop.session import Session
from orchestrator.engine.preparation.prepared import MissingOutput
from orchestrator.engine.state.names import host_job_name
from orchestrator.errors import OrchError
from orchestrator.hosts import Failure
from orchestrator.messages import to_one_line
from orchestrator.plan.desired import Run
from orchestrator.plan.steps import Wait, WaitFor

FIRST_LOOK = 0.05  # seconds; local hosts are ready immediately
SLOWEST_LOOK = 5.0
REPORT_EVERY = 1.0
LOOK_EVERY = 10.0  # seconds between two observations while the program runs
MEMBERS_EVERY = 2.0  # seconds between two questions whether a member waits to be let in
LAST_WORDS = 10.0  # seconds the logs may still need after the program has ended
FOLLOW_AGAIN = 3.0  # seconds until the output is followed again after an error of this computer, such as a full disk


class Waiter:
    """Tracks how long the same wait has lasted, so that observations become rarer and progress is reported."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._reason = ""
        self._since = 0.0
        self._pause = FIRST_LOOK
        self._reported = 0.0

    def wait(self, wait: Wait, *, yielding: bool = False) -> None:
        """Return when another observation is worthwhile. With `yielding` the lease is free meanwhile."""
        now = time.monotonic()
        if wait.reason != self._reason:
            self._reason, self._since, self._pause, self._reported = wait.reason, now, FIRST_LOOK, 0.0
        if wait.on is WaitFor.JOB:
            self._job(wait)
            return
        if now - self._reported >= REPORT_EVERY:
            self._session.narrator.waiting(wait, now - self._since)
            self._reported = now
        clock, pause = self._session.services.clock, self._pause
        if wait.on is WaitFor.PAUSE and wait.until is not None:
            pause = max(0.01, min(wait.until - clock.now(), SLOWEST_LOOK))
        if yielding:
            self._session.keeper.release()
            pause = SLOWEST_LOOK  # newer sshd answer later to whoever is refused often
        clock.sleep(pause)
        self._pause = min(self._pause * 1.5, SLOWEST_LOOK if wait.on is WaitFor.SLICE else 0.5)

    def _job(self, wait: Wait) -> None:
        """Follow the logs until the program ends on some host, who may log in changes, or for a while.

        The lease is free meanwhile.
        """
        session = self._session
        if not session.services.follows_logs:
            session.services.clock.sleep(LOOK_EVERY)
            return
        follower = ensure_follower(session)
        session.keeper.release()
        began = checked = time.monotonic()
        while not follower.wait(REPORT_EVERY) and (now := time.monotonic()) < began + LOOK_EVERY:
            session.narrator.waiting(wait, now - self._since)
            if now - checked >= MEMBERS_EVERY:
                checked = now
                if have_members_changed(session):
                    break
        for rank, outcome in follower.outcomes.items():
            stopped = outcome.failure is Failure.STOPPED or outcome.ended_by is not None
            if not (outcome.ok or stopped) and session.memory.first_failed is None:
                session.memory.first_failed = rank
        if not follower.running:
            session.memory.outcomes = tuple(follower.outcomes.values())
            error, session.follower = follower.error, None
            follower.stop()
            if error is not None:
                _report_follow_error(session, error)
                session.services.clock.sleep(FOLLOW_AGAIN)


def ensure_follower(session: Session) -> Follower:
    """Return the follower of the current attempt's logs, started if there is none."""
    job, desired = session.job, session.desired
    assert job is not None and isinstance(desired, Run)  # noqa: S101  # only a Run has a program to watch
    current = session.store.job(session.cluster, job.id)
    folder = host_job_name(session.cluster.uid, f"{job.id}-a{current.attempt}")
    if session.follower is not None and session.follower.job != folder:
        session.follower.stop()
        session.follower = None
    if session.follower is None:
        logs = session.paths.logs(session.cluster.uid, job.id) / f"attempt-{current.attempt:04d}"
        hands = session.host_operations(session.hosts)
        session.follower = Follower(hands, folder, logs, session.narrator, desired.ranks)
    return session.follower


def drain_logs(session: Session) -> None:
    """Wait for the program's last output before its result is recorded."""
    if not session.services.follows_logs or not session.hosts:
        return
    if not isinstance(session.desired, Run) or session.desired.job is None:
        return
    if session.job is None or not session.store.job(session.cluster, session.job.id).started:
        return
    follower = ensure_follower(session)
    follower.finish(LAST_WORDS)
    if follower.error is not None and follower.find_incomplete(session.memory.log_sizes):
        follower.stop()
        session.follower = None
        follower = ensure_follower(session)  # the error may have passed; what has come is not read again
        follower.finish(LAST_WORDS)
    session.memory.outcomes = tuple(follower.outcomes.values()) or session.memory.outcomes
    _note_missing_output(session, follower)


def _note_missing_output(session: Session, follower: Follower) -> None:
    """Record which hosts' output has not come, and why, for the end of the command and for `orch events`."""
    missing = follower.find_incomplete(session.memory.log_sizes)
    if not missing or session.job is None:
        return
    why = f"the hosts sent not all of it within {LAST_WORDS:.0f} s"
    if follower.error is not None:
        why = to_one_line(str(follower.error)) or type(follower.error).__name__
    name, number = session.cluster.name, session.job.id
    found = MissingOutput(ranks=missing, why=why, next_step=f"orch logs {name} {number}")
    session.memory.missing_output = found
    session.store.event(session.cluster.qualified_name, "output", f"job {number}: {found.what}: {found.why}")


def _report_follow_error(session: Session, error: BaseException) -> None:
    """Report an error of this computer in following the output once; the program, and orch's watch, continue.

    Raises:
        BaseException: The error, where it is of another kind, such as a closed standard output.
    """
    if not isinstance(error, OrchError):
        raise error
    words = to_one_line(str(error))
    if words != session.memory.follow_error:
        session.memory.follow_error = words
        session.narrator.note(f"the output is not followed now: {words}; tried again every {FOLLOW_AGAIN:.0f} s")
