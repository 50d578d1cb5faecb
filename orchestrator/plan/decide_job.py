"""Decide about the program: start it, wait, stop the rest after a failure, classify its end."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan import recovery
from orchestrator.plan.actions import Action, CollectStacks, Conclude, EndAttempt, NextAttempt, StartJob, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import host_environment, select_hosts
from orchestrator.plan.decide_slice import end_status, next_attempt_or_end
from orchestrator.plan.desired import JobSpec, Run
from orchestrator.plan.evidence import detect_hang, find_furthest_step
from orchestrator.plan.limits import format_time
from orchestrator.plan.observed import EndedAttempt, HostView, Observed, Outcome
from orchestrator.plan.ranks import count_hosts, label_rank
from orchestrator.plan.steps import Step, Wait, WaitFor
from orchestrator.plan.stopped import (
    FROM_ELSEWHERE,
    SIGNAL_CODE,
    describe_exit,
    describe_failed_rank,
    make_bucketless_outcome,
    make_stopped_outcome,
)
from orchestrator.plan.ways_back import may_resume, resume_step, step_without_bucket


def decide_job_step(desired: Run, observed: Observed) -> Step:
    """Return the next step towards a recorded result."""
    job = desired.job
    if job is None:
        return Conclude(status=Exit.OK, code="ok", what=f"cluster '{desired.cluster}' is up and set up")
    hosts = select_hosts(desired, observed)
    folder = job.folder(observed.attempt)
    bad = [host for host in hosts if _failed(host) and host.ended_by is None]
    absent = tuple(host.rank for host in hosts if host.job is JobPhase.ABSENT)
    running = tuple(host.rank for host in hosts if host.job is JobPhase.RUNNING)
    if observed.pending_end is not None:
        return _execute(desired, observed, job, observed.pending_end, running)
    if bad:
        return _after_failure(desired, observed, job, bad, running)
    if outcome := make_stopped_outcome(f"job {job.id}", hosts, _step_after_stop(desired, observed)):
        return _after_stop(desired, observed, job, outcome, running)
    if absent:
        until = recovery.pause_until(desired, observed)
        if observed.now < until:
            return Wait(on=WaitFor.PAUSE, reason=f"a short pause before attempt {observed.attempt}", until=until)
        env = host_environment(desired, observed, setup=False)
        return StartJob(job=folder, attempt=observed.attempt, script=job.script, environment=env, ranks=absent)
    if running:
        return _watch(desired, observed, job, hosts, running)
    return Conclude(
        status=Exit.OK, code="ok", what=f"job {job.id} on '{desired.cluster}' succeeded on {count_hosts(len(hosts))}"
    )


def job_succeeded(desired: Run, observed: Observed) -> bool:
    """Return whether the program returned 0 on every host without having been stopped."""
    intent, hosts = observed.current, select_hosts(desired, observed)
    if desired.job is None or intent is None or observed.pending_end is not None or not hosts:
        return False
    if len(observed.hosts) < intent.candidate.hosts:
        return False
    return all(host.job is JobPhase.FINISHED and host.exit_code == 0 and host.ended_by is None for host in hosts)


def list_own_ends(desired: Run, observed: Observed) -> list[str]:
    """Return how the program ended on ranks where it had ended by itself before the others were ended."""
    if all(host.ended_by is None for host in observed.hosts):
        return []
    own = [host for host in select_hosts(desired, observed) if host.job is JobPhase.FINISHED and host.ended_by is None]
    return [f"{label_rank(host.rank)} had ended before with {describe_exit(host.exit_code or 0)}" for host in own]


def conclude_own_failure(desired: Run, observed: Observed) -> Conclude | None:
    """Return the end of a program that had failed by itself on every host before a limit or a cancel; else None."""
    hosts = select_hosts(desired, observed)
    restartable = {0, int(Exit.PREEMPTED), *desired.budgets.restart_on, *FROM_ELSEWHERE}
    own = [host for host in hosts if host.job is JobPhase.FINISHED and host.ended_by is None]
    bad = [host for host in own if host.exit_code not in restartable]
    if not bad or len(own) < len(hosts) or observed.pending_end is not None:
        return None
    culprit = _culprit(desired, observed, bad)
    no_more = replace(desired.budgets, preemptions=0, failures=0, storage=0)
    step = _judge(replace(desired, budgets=no_more), observed, culprit, _describe_failure(desired.job_id, culprit))
    return step if isinstance(step, Conclude) else None


def _watch(
    desired: Run, observed: Observed, job: JobSpec, hosts: tuple[HostView, ...], running: tuple[int, ...]
) -> Step:
    """Wait for a running program, or end the attempt when it makes no progress."""
    found = detect_hang(hosts, desired.budgets.hang_deadline)
    if found is None:
        state, until = f"job {job.id} runs on {len(running)} of {count_hosts(len(hosts))}", None
        if observed.slice_ends is not None:
            until = observed.slice_ends - desired.budgets.save_before
            last, taken = format_time(until, observed.now), format_time(observed.slice_ends, observed.now)
            state += f"; at {last} it is asked to save and stop, its machines are taken from {taken} on"
        return Wait(on=WaitFor.JOB, reason=state, until=until)
    tried = observed.failure is not None and observed.failure.action == "CollectStacks"
    if not observed.stacks_collected and not tried:
        return CollectStacks(job.folder(observed.attempt), found.why, running)
    cause = EndCause.PROGRAM if recovery.hung_without_progress(observed, found.step) else EndCause.HUNG
    return EndAttempt(attempt=observed.attempt, cause=cause, why=found.why, step=found.step, rank=found.rank)


def _execute(desired: Run, observed: Observed, job: JobSpec, verdict: EndedAttempt, running: tuple[int, ...]) -> Step:
    """Stop the program of an attempt whose verdict is recorded, then open the next attempt or record the end."""
    if running:
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=EndedBy.RESTART, why=verdict.why, grace=job.stop_grace, ranks=running)
    status = end_status(verdict.cause)
    return next_attempt_or_end(
        desired, observed, verdict.cause, verdict.why, None, status, rank=verdict.rank, step=verdict.step
    )


def _after_stop(
    desired: Run, observed: Observed, job: JobSpec, outcome: Outcome, running: tuple[int, ...]
) -> StopJob | Conclude:
    """Stop the ranks that still run after others were ended from outside, and record that as the result.

    The request is not on record here: another command that ended it died, or the record was lost.
    """
    trouble = observed.failure
    if running and (trouble is None or trouble.action != "StopJob"):
        reasons = {host.ended_by for host in observed.hosts}
        reason = next(one for one in EndedBy if one in reasons)
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=reason, why=outcome.what, grace=job.stop_grace, ranks=running)
    return _conclude_with(replace(outcome, why="; ".join(list_own_ends(desired, observed))))


def _conclude_with(outcome: Outcome) -> Conclude:
    """Return the action that records a result."""
    return Conclude(
        status=outcome.status,
        code=outcome.code,
        what=outcome.what,
        why=outcome.why,
        next_step=outcome.next_step,
    )


def _step_after_stop(desired: Run, observed: Observed) -> NextStep:
    if may_resume(desired, observed):
        return resume_step(desired, observed)
    return NextStep(words="the same launch starts it again" if desired.create else "the same command starts it again")


def _failed(host: HostView) -> bool:
    return host.job is JobPhase.LOST or (host.job is JobPhase.FINISHED and host.exit_code != 0)


def _after_failure(
    desired: Run, observed: Observed, job: JobSpec, bad: list[HostView], running: tuple[int, ...]
) -> Step:
    culprit = _culprit(desired, observed, bad)
    failure = _describe_failure(job.id, culprit)
    if (
        running
        and observed.failure is not None
        and observed.failure.action == "StopJob"
        and not observed.failure.connection_lost
    ):
        verdict = _judge(desired, observed, culprit, failure)
        if not isinstance(verdict, NextAttempt):
            return verdict
        # A program that cannot be stopped costs its machine: the verdict is recorded, then the slice is ended.
        return EndAttempt(
            attempt=observed.attempt, cause=verdict.cause, why=verdict.why, step=verdict.step, rank=verdict.rank
        )
    if running:
        since = observed.failed_since if observed.failed_since is not None else observed.now
        until = since + job.failure_grace
        if observed.now < until:
            return Wait(
                on=WaitFor.GRACE, reason=f"{failure}; the others have {job.failure_grace:.0f} s to end", until=until
            )
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=EndedBy.RESTART, why=failure, grace=job.stop_grace, ranks=running)
    only_saved = all(host.job is JobPhase.FINISHED and host.exit_code == Exit.PREEMPTED for host in bad)
    if only_saved and Exit.PREEMPTED not in desired.budgets.fail_on:
        failure = f"job {job.id} saved a checkpoint and requested a restart (exit {int(Exit.PREEMPTED)})"
    return _judge(desired, observed, culprit, failure)


def _judge(desired: Run, observed: Observed, culprit: HostView, failure: str) -> Action:
    code, furthest = culprit.exit_code, find_furthest_step(observed.hosts)
    if culprit.job is JobPhase.LOST:
        cause, last = EndCause.HOST_DIED, culprit.last_line
        return next_attempt_or_end(
            desired, observed, cause, failure, None, Exit.HOST_LOST, last, rank=culprit.rank, step=furthest
        )
    assert code is not None  # noqa: S101  # a finished job has a status
    if culprit.bucketless:
        step_back = step_without_bucket(desired, observed)
        return _conclude_with(make_bucketless_outcome(desired.job_id, culprit, step_back))
    cause, last, remedy = EndCause.PROGRAM, culprit.last_line, culprit.remedy
    if FROM_ELSEWHERE.get(code) == "KILL" and not remedy:
        remedy = f"orch ssh {desired.cluster} {culprit.rank} -- sudo dmesg   names programs that were killed for memory"
    if code == Exit.PREEMPTED:
        cause = EndCause.PREEMPTED
    elif code in desired.budgets.restart_on:
        cause = EndCause.EXIT_STATUS
    step = next_attempt_or_end(
        desired,
        observed,
        cause,
        failure,
        None,
        code,
        last,
        remedy=remedy,
        exit_code=code,
        rank=culprit.rank,
        step=furthest,
    )
    if code not in FROM_ELSEWHERE or not isinstance(step, Conclude):
        return step
    return replace(step, code=SIGNAL_CODE)


def _culprit(desired: Run, observed: Observed, bad: list[HostView]) -> HostView:
    """Return the host to blame.

    The order is: a host whose bucket cannot be used, or whose status forbids a restart (which host failed first is
    partly chance), a lost host, one whose bucket failed (the others then miss it as a peer), and of those that do not
    only miss a peer: the host that was seen to fail first, a host that failed by itself, a host that a signal from
    elsewhere ended. Hosts that orch stopped are never among them.
    """
    if without := [host for host in bad if host.bucketless]:
        return without[0]
    forbidden = {*desired.budgets.fail_on, *desired.budgets.final} - set(FROM_ELSEWHERE)
    final = [host for host in bad if host.exit_code in forbidden]
    if final:
        return final[0]
    lost = [host for host in bad if host.job is JobPhase.LOST]
    if lost:
        return lost[0]
    if desired.budgets.storage and (without_bucket := [host for host in bad if host.exit_code == Exit.STORAGE]):
        return without_bucket[0]
    bad = [host for host in bad if not host.lost_peer] or bad
    first = [host for host in bad if host.rank == observed.first_failed]
    own = [host for host in bad if host.exit_code not in FROM_ELSEWHERE]
    return (first or own or bad)[0]


def _describe_failure(job_id: int, host: HostView) -> str:
    if host.job is JobPhase.LOST:
        where = f"{label_rank(host.rank)} (rank {host.rank})"
        return f"job {job_id} vanished on {where}: killed with KILL, or the host restarted"
    return describe_failed_rank(job_id, host.rank, host.exit_code or 0)
