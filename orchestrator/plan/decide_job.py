"""Decisions about the program: start it, wait, stop the rest after a failure, judge the end."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan import recovery
from orchestrator.plan.actions import Action, CollectStacks, Conclude, EndAttempt, NextAttempt, StartJob, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import chosen, environment
from orchestrator.plan.decide_slice import next_attempt_or_end, verdict_status
from orchestrator.plan.desired import JobWanted, Run
from orchestrator.plan.evidence import furthest, hang
from orchestrator.plan.limits import moment
from orchestrator.plan.observed import Ended, HostView, Observed
from orchestrator.plan.steps import Step, Wait, WaitFor

STOPPED_BY_US = frozenset({143, 137})  # 128 + TERM, 128 + KILL: what the others show after StopJob
HIGHEST_SIGNAL = 64  # on Linux (signal(7)); a higher status, such as 255, is the program's own


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
    if observed.condemned is not None:
        return _execute(desired, observed, job, observed.condemned, running)
    if bad:
        return _after_failure(desired, observed, job, bad, running)
    if absent:
        until = recovery.pause_until(desired, observed)
        if observed.now < until:
            return Wait(WaitFor.PAUSE, f"a short pause before attempt {observed.attempt}", until)
        env = environment(desired, observed, setup=False)
        return StartJob(folder, observed.attempt, job.script, env, absent)
    if running:
        return _watch(desired, observed, job, hosts, running)
    return Conclude(Exit.OK, "ok", f"job {job.id} on '{desired.cluster}' ended well on {len(hosts)} host(s)")


def ended_well(desired: Run, observed: Observed) -> bool:
    """The program returned 0 on every host, and nobody had stopped it."""
    intent, hosts = observed.current, chosen(desired, observed)
    if desired.job is None or intent is None or observed.condemned is not None or not hosts:
        return False
    if len(observed.hosts) < intent.candidate.hosts:
        return False
    return all(host.job is JobPhase.FINISHED and host.exit_code == 0 for host in hosts)


def _watch(
    desired: Run, observed: Observed, job: JobWanted, hosts: tuple[HostView, ...], running: tuple[int, ...]
) -> Step:
    """It runs; does it move?"""
    found = hang(hosts, desired.budgets.hang_deadline)
    if found is None:
        words, until = f"job {job.id} runs on {len(running)} of {len(hosts)} host(s)", None
        if observed.slice_ends is not None:
            until = observed.slice_ends - desired.budgets.save_before
            last, taken = moment(until, observed.now), moment(observed.slice_ends, observed.now)
            words += f"; at {last} it is told to save and stop, its machines are taken from {taken} on"
        return Wait(WaitFor.JOB, words, until)
    tried = observed.trouble is not None and observed.trouble.step == "CollectStacks"
    if not observed.stacks and not tried:
        return CollectStacks(job.folder(observed.attempt), found.why, running)
    cause = EndCause.PROGRAM if recovery.hung_again(observed, found.step) else EndCause.HUNG
    return EndAttempt(observed.attempt, cause, found.why, found.step, found.rank)


def _execute(desired: Run, observed: Observed, job: JobWanted, verdict: Ended, running: tuple[int, ...]) -> Step:
    """The verdict on this attempt is on record; its program is stopped, then the next one is opened, or all ends."""
    if running:
        return StopJob(job.folder(observed.attempt), verdict.why, job.stop_grace, running)
    status = verdict_status(verdict.cause)
    return next_attempt_or_end(
        desired, observed, verdict.cause, verdict.why, None, status, rank=verdict.rank, step=verdict.step
    )


def _failed(host: HostView) -> bool:
    return host.job is JobPhase.LOST or (host.job is JobPhase.FINISHED and host.exit_code != 0)


def _after_failure(
    desired: Run, observed: Observed, job: JobWanted, bad: list[HostView], running: tuple[int, ...]
) -> Step:
    culprit = _culprit(desired, observed, bad)
    words = _words(job, culprit)
    if running and observed.trouble is not None and observed.trouble.step == "StopJob" and not observed.trouble.lost:
        verdict = _judge(desired, observed, culprit, words)
        if not isinstance(verdict, NextAttempt):
            return verdict
        # What cannot be stopped keeps its machine: the verdict goes on record, and then the machine goes.
        return EndAttempt(observed.attempt, verdict.cause, verdict.why, verdict.step, verdict.rank)
    if running:
        since = observed.failed_since if observed.failed_since is not None else observed.now
        until = since + job.failure_grace
        if observed.now < until:
            return Wait(WaitFor.GRACE, f"{words}; the others have {job.failure_grace:.0f} s to end", until)
        return StopJob(job.folder(observed.attempt), words, job.stop_grace, running)
    only_saved = all(host.job is JobPhase.FINISHED and host.exit_code == Exit.PREEMPTED for host in bad)
    if only_saved and Exit.PREEMPTED not in desired.budgets.fail_on:
        words = f"job {job.id} saved a checkpoint and asks to be run again (exit {int(Exit.PREEMPTED)})"
    return _judge(desired, observed, culprit, words)


def _judge(desired: Run, observed: Observed, culprit: HostView, words: str) -> Action:
    code, step = culprit.exit_code, furthest(observed.hosts)
    if culprit.job is JobPhase.LOST:
        cause, last = EndCause.HOST_DIED, culprit.last_line
        return next_attempt_or_end(
            desired, observed, cause, words, None, Exit.HOST_LOST, last, rank=culprit.rank, step=step
        )
    assert code is not None  # noqa: S101  # a finished job has a status
    cause = EndCause.PROGRAM
    if code == Exit.PREEMPTED or code in desired.budgets.restart_on:
        cause = EndCause.PREEMPTED
    return next_attempt_or_end(
        desired, observed, cause, words, None, code, culprit.last_line, exit_code=code, rank=culprit.rank, step=step
    )


def _culprit(desired: Run, observed: Observed, bad: list[HostView]) -> HostView:
    """The host to blame: lost before failed, seen first before seen later, its own failure before ours.

    Before all of them one whose status forbids another try: which host was seen first is partly chance.
    """
    final = [host for host in bad if host.exit_code in set(desired.budgets.fail_on) - STOPPED_BY_US]
    if final:
        return final[0]
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
    how = f"signal {code - 128}" if 128 < code <= 128 + HIGHEST_SIGNAL else f"exit {code}"
    return f"job {job.id} failed on {name} (rank {host.rank}): {how}"
