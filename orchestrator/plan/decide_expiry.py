"""Decide about machines that the provider takes back at an announced time, such as those of a capacity block.

Before that time the program is asked to save and stop, as at a limit. It counts against no restart budget. Where the
task names other candidates, the run resumes there; else it ends.
"""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan import recovery
from orchestrator.plan.actions import Conclude, EndAttempt, ForgetSlice, NextAttempt, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import select_hosts
from orchestrator.plan.decide_slice import end_slice, wait_for_slice
from orchestrator.plan.desired import Run
from orchestrator.plan.evidence import find_furthest_step, wait_for_contact
from orchestrator.plan.facts import Facts
from orchestrator.plan.limits import LIMIT_CODE, format_time
from orchestrator.plan.observed import Contact, IntentState, Observed
from orchestrator.plan.steps import Step
from orchestrator.plan.ways_back import may_resume, resume_step
from orchestrator.slices import CapacityBlock, SliceState


def find_expiry(desired: Run, observed: Observed) -> str | None:
    """Return a message when the machines' time is over; None before, or where no end is announced."""
    verdict, intent, ends = observed.pending_end, observed.current, observed.slice_ends
    if verdict is not None:  # any other verdict is executed first
        return verdict.why if verdict.cause is EndCause.EXPIRED else None
    if intent is None or intent.state is not IntentState.ACCEPTED or ends is None:
        return None
    if observed.now < ends - desired.budgets.save_before or _failed_by_itself(desired, observed):
        return None
    what = "the capacity block" if isinstance(intent.candidate.market, CapacityBlock) else "the time of its machines"
    return f"{what} is over at {format_time(ends, observed.now)}"


def handle_expiry(desired: Run, observed: Observed, facts: Facts, why: str) -> Step:
    """Let the program save, then resume with another candidate, or end the run."""
    return (
        save_and_stop(desired, observed, EndCause.EXPIRED, why)
        or _resume_elsewhere(desired, observed, facts, why)
        or _conclude(desired, observed, why)
    )


def _failed_by_itself(desired: Run, observed: Observed) -> bool:
    """Return whether the program failed before orch stopped it; such a failure counts as every other."""
    hosts, restartable = select_hosts(desired, observed), {0, int(Exit.PREEMPTED), *desired.budgets.restart_on}
    if any(host.contact is not Contact.OK for host in hosts):
        return False
    own = [host for host in hosts if host.job is JobPhase.FINISHED and host.ended_by is None]
    return any(host.exit_code not in restartable for host in own)


def save_and_stop(desired: Run, observed: Observed, cause: EndCause, why: str) -> Step | None:
    """Return the next step that lets the program save and stop wherever it can be reached; None when none is left."""
    job, intent, trouble = desired.job, observed.current, observed.failure
    if job is None or not observed.started or intent is None or intent.state is not IntentState.ACCEPTED:
        return None
    if observed.slice_state is SliceState.UNCLEAR:  # it may still run
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return wait_for_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running and observed.pending_end is None:  # recorded first: an exit 0 after our stop is no success
        return EndAttempt(attempt=observed.attempt, cause=cause, why=why, step=find_furthest_step(observed.hosts))
    if running and (trouble is None or trouble.action != "StopJob"):
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=EndedBy.RESTART, why=why, grace=job.limit_grace, ranks=running)
    silent = [host.rank for host in select_hosts(desired, observed) if host.contact is not Contact.OK]
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.lost_deadline
    if silent and observed.now < until:
        return wait_for_contact(select_hosts(desired, observed), until)
    return None


def _resume_elsewhere(desired: Run, observed: Observed, facts: Facts, why: str) -> Step | None:
    """Return the next step towards another candidate; None where there is none, or the task allows no restart."""
    intent = observed.current
    if not desired.create or not desired.budgets.preemptions or intent is None:
        return None
    if all(
        recovery.is_same_machine(candidate, intent.candidate)
        for candidate in recovery.order_candidates(desired, observed)
    ):
        return None
    if observed.started:  # with the generation, so that its end is never charged as a loss
        step = find_furthest_step(observed.hosts)
        return NextAttempt(
            attempt=observed.attempt + 1, cause=EndCause.EXPIRED, why=why, generation=intent.generation, step=step
        )
    if observed.slice_state is SliceState.ABSENT:
        return ForgetSlice(intent.name, EndCause.EXPIRED, why)
    return end_slice(facts, intent, EndCause.EXPIRED, why)


def _conclude(desired: Run, observed: Observed, why: str) -> Conclude:
    """Record that the machines' time is over. A run that has not started keeps machines that existed before it."""
    early = not observed.started and desired.job is not None and observed.attempt == 1
    intent = observed.current
    existed = not desired.create or (early and intent is not None and intent.generation <= observed.generation_at_open)
    code, last = ("timeout", "the provider takes its machines") if existed else (LIMIT_CODE, "its machines are ended")
    step = NextStep(words="name other machines in the task, or another block, then launch again")
    if not early and may_resume(desired, observed):
        step = resume_step(desired, observed)
    return Conclude(
        status=Exit.TIMEOUT,
        code=code,
        what=f"'{desired.cluster}': {'too late to start: ' if early else ''}{why}",
        why=last,
        next_step=step,
    )
