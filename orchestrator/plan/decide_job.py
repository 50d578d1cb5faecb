"""Decisions about the program: start it, wait, stop the rest after a failure, judge the end."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import Action, Conclude, StartJob, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import chosen, environment
from orchestrator.plan.decide_slice import next_attempt_or_end
from orchestrator.plan.desired import JobWanted, Run
from orchestrator.plan.observed import HostView, Observed
from orchestrator.plan.steps import Step, Wait, WaitFor

STOPPED_BY_US = frozenset({143, 137})  # 128 + TERM, 128 + KILL: what the others show after StopJob


def have_result(desired: Run, observed: Observed) -> Step:
    """The next step towards a recorded result."""
    job = desired.job
    if job is None:
        return Conclude(Exit.OK, "ok", f"cluster '{desired.cluster}' is up and set up")
    hosts = chosen(desired, observed)
    folder = job.folder(observed.attempt)
    bad = [host for host in hosts if _failed(host)]
    absent = tuple(host.rank for host in hosts if host.job is JobPhase.ABSENT)
    running = tuple(host.rank for host in hosts if host.job is JobPhase.RUNNING)
    if bad:
        return _after_failure(desired, observed, job, bad, running)
    if absent:
        env = environment(desired, observed, setup=False)
        return StartJob(folder, observed.attempt, job.script, env, absent)
    if running:
        return Wait(WaitFor.JOB, f"job {job.id} runs on {len(running)} of {len(hosts)} host(s)", None)
    return Conclude(Exit.OK, "ok", f"job {job.id} on '{desired.cluster}' ended well on {len(hosts)} host(s)")


def _failed(host: HostView) -> bool:
    return host.job is JobPhase.LOST or (host.job is JobPhase.FINISHED and host.exit_code != 0)


def _after_failure(
    desired: Run, observed: Observed, job: JobWanted, bad: list[HostView], running: tuple[int, ...]
) -> Step:
    culprit = _culprit(observed, bad)
    words = _words(job, culprit)
    if running:
        since = observed.failed_since if observed.failed_since is not None else observed.now
        until = since + job.failure_grace
        if observed.now < until:
            return Wait(WaitFor.GRACE, f"{words}; the others have {job.failure_grace:.0f} s to end", until)
        return StopJob(job.folder(observed.attempt), words, job.stop_grace, running)
    if all(host.job is JobPhase.FINISHED and host.exit_code == Exit.PREEMPTED for host in bad):
        words = f"job {job.id} saved a checkpoint and asks to be run again (exit {int(Exit.PREEMPTED)})"
    return _judge(desired, observed, culprit, words)


def _judge(desired: Run, observed: Observed, culprit: HostView, words: str) -> Action:
    code = culprit.exit_code
    if culprit.job is JobPhase.LOST:
        return next_attempt_or_end(
            desired, observed, EndCause.PREEMPTED, words, None, Exit.HOST_LOST, culprit.last_line
        )
    assert code is not None  # noqa: S101  # a finished job has a status
    cause = EndCause.PROGRAM
    if code == Exit.PREEMPTED or code in desired.budgets.restart_on:
        cause = EndCause.PREEMPTED
    return next_attempt_or_end(desired, observed, cause, words, None, code, culprit.last_line)


def _culprit(observed: Observed, bad: list[HostView]) -> HostView:
    """The host to blame: lost before failed, seen first before seen later, its own failure before ours."""
    lost = [host for host in bad if host.job is JobPhase.LOST]
    if lost:
        return lost[0]
    first = [host for host in bad if host.rank == observed.first_failed]
    own = [host for host in bad if host.exit_code not in STOPPED_BY_US]
    return (first or own or bad)[0]


def _words(job: JobWanted, host: HostView) -> str:
    name = "head" if host.rank == 0 else f"worker{host.rank}"
    if host.job is JobPhase.LOST:
        return f"job {job.id} vanished on {name} (rank {host.rank}): killed hard, or the host restarted"
    code = host.exit_code or 0
    how = f"signal {code - 128}" if code > 128 else f"exit {code}"
    return f"job {job.id} failed on {name} (rank {host.rank}): {how}"
