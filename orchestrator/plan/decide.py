"""Choose the next step: the one entry to all decisions. Pure: no I/O, no clock, no randomness.

The checks run in this order: the account, a recorded result, limits, `down` and `cancel` requests, the end of the
machines' time, the slice, its hosts (SSH, files, setup), the program. docs/state-table.md lists every state with its
answer.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan import decide_expiry, decide_growth, decide_hosts, decide_job, decide_slice, limits
from orchestrator.plan.actions import Conclude, EndAttempt, StopJob, StopSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Cancel, Desired, Down, Run, Start, Stop
from orchestrator.plan.evidence import find_furthest_step, wait_for_contact
from orchestrator.plan.facts import Facts
from orchestrator.plan.host_version import find_other_version
from orchestrator.plan.limits import LIMIT_CODE
from orchestrator.plan.observed import Contact, IntentState, Observed
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.repeated import find_missing_effect
from orchestrator.plan.steps import Done, GiveUp, Step
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.plan.ways_back import may_resume, name_command_again, resume_step
from orchestrator.slices import Owned, SliceState


def decide(desired: Desired, observed: Observed, facts: Facts) -> Step:
    """Return the next step towards `desired`. It is called after every step, with a new observation.

    An action that succeeded three times without its effect has failed: it is not taken again.
    """
    step = _decide(desired, observed, facts)
    failure = find_missing_effect(desired.cluster, step, observed)
    if failure is None:
        return step
    other = _decide(desired, replace(observed, failure=failure), facts)
    if find_missing_effect(desired.cluster, other, observed) is None:
        return other
    return GiveUp(
        code=failure.code, status=failure.status, what=failure.what, why=failure.why, next_step=failure.next_step
    )


def _decide(desired: Desired, observed: Observed, facts: Facts) -> Step:
    if (other := observed.refusal) is not None:  # before all else: neither a look nor an end would mean anything
        return GiveUp(code=other.code, status=other.status, what=other.what, why=other.why, next_step=other.next_step)
    match desired:
        case Run():
            if observed.current is not None:
                desired = desired.adapt(observed.current.candidate)
            return _run(desired, observed, facts)
        case Down():
            return _down(desired, observed, facts)
        case Stop():
            return _stop(desired, observed, facts)
        case Start():
            return _start(desired, observed, facts)
        case Cancel():
            return _cancel(desired, observed)


def _run(desired: Run, observed: Observed, facts: Facts) -> Step:
    if observed.outcome is not None:
        return _wind_up(desired, observed, facts)
    if (limit := _limit(desired, observed)) is not None and not decide_job.job_succeeded(desired, observed):
        return _at_limit(desired, observed, limit)
    if observed.down_requested:
        return GiveUp(
            code="conflict",
            status=Exit.CONFLICT,
            what=f"cluster '{desired.cluster}' is being taken down, and the command that began it did not finish",
            next_step=NextStep(f"orch down {desired.cluster}"),
        )
    if (refused := find_other_version(desired.cluster, decide_hosts.select_hosts(desired, observed))) is not None:
        return _refuse_version(desired, observed, refused)
    if observed.taken_over and not decide_job.job_succeeded(desired, observed):
        return _taken_over(desired, observed)
    if observed.cancel_requested and not decide_job.job_succeeded(desired, observed):
        return _cancelled(desired, observed)
    if (why := decide_expiry.find_expiry(desired, observed)) is not None and not decide_job.job_succeeded(
        desired, observed
    ):
        return decide_expiry.handle_expiry(desired, observed, facts, why)
    return (
        decide_growth.decide_growth_step(desired, observed, facts)
        or decide_slice.decide_slice_step(desired, observed, facts)
        or decide_hosts.decide_hosts_step(desired, observed, facts)
        or decide_job.decide_job_step(desired, observed)
    )


def _refuse_version(desired: Run, observed: Observed, end: GiveUp) -> Step:
    """Return the end, recorded for a command (exec) that was not started: nothing starts it later.

    A launch stays open, for an orch of the hosts' version.
    """
    if desired.create or observed.started or desired.teardown is TeardownPolicy.DOWN:
        return end
    return Conclude(status=end.status, code=end.code, what=end.what, why=end.why, next_step=end.next_step)


def _limit(desired: Run, observed: Observed) -> str | None:
    """Return the message of the limit that ends this run. A limit that ended an attempt still counts after a raise."""
    verdict = observed.pending_end
    if verdict is not None and verdict.cause is EndCause.LIMIT:
        return verdict.why
    return (
        limits.find_reached_limit(desired, observed)
        or limits.find_timer_end(desired, observed)
        or limits.find_stop_by_timer(desired, observed)
        or observed.spent_budget
        or None
    )


def _cancelled(desired: Run, observed: Observed) -> Step:
    """Stop the program of a cancelled job wherever it can be reached, then record the result.

    One that had failed by itself everywhere keeps its own result, and is not restarted.
    """
    if (own := decide_job.conclude_own_failure(desired, observed)) is not None:
        return own
    left = _stop_everywhere(desired, observed, EndedBy.CANCEL, "cancel was requested")
    if not isinstance(left, str):
        return left
    back = resume_step(desired, observed) if may_resume(desired, observed) else NextStep()
    return Conclude(
        status=Exit.INTERRUPTED, code="cancelled", what=f"job {desired.job_id} was cancelled", why=left, next_step=back
    )


def _taken_over(desired: Run, observed: Observed) -> Step:
    """Stop the program of a run that another computer has claimed, then record the result."""
    left = _stop_everywhere(desired, observed, EndedBy.TAKEN_OVER, "another computer has taken the run over")
    if not isinstance(left, str):
        return left
    back = f"orch resume {desired.cluster} --take-over"
    return Conclude(
        status=Exit.CONFLICT,
        code="conflict",
        what=observed.taken_over,
        why=left or "one run has one driver; nothing more is started here",
        next_step=NextStep(
            f"orch down {desired.cluster}", f"its machines are not needed any more\nto take it back: {back}"
        ),
    )


def _stop_everywhere(desired: Run, observed: Observed, ended_by: EndedBy, reason: str) -> Step | str:
    """Return the next step until no host runs the program; at the end where it may still run, in words, or ""."""
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    job, trouble = desired.job, observed.failure
    if job is not None and running and (trouble is None or trouble.action != "StopJob"):
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=ended_by, why=reason, grace=job.stop_grace, ranks=running)
    intent, why = observed.current, ""
    if observed.started and intent is not None and intent.state is IntentState.ACCEPTED:
        if observed.slice_state is SliceState.UNCLEAR:  # it may still run
            since = observed.unclear_since if observed.unclear_since is not None else observed.now
            return decide_slice.wait_for_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
        silent = [host.rank for host in decide_hosts.select_hosts(desired, observed) if host.contact is not Contact.OK]
        since = observed.contact_since if observed.contact_since is not None else observed.now
        until = since + desired.budgets.lost_deadline
        if silent and observed.now < until:
            return wait_for_contact(decide_hosts.select_hosts(desired, observed), until)
        left = tuple(sorted({*silent, *running}))
        why = f"it may still run on {format_hosts(left)}, where it could not be stopped" if left else ""
    return why


def _at_limit(desired: Run, observed: Observed, limit: str) -> Step:
    """Stop the program, which may save first, then record that the limit ended the run."""
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    job, trouble = desired.job, observed.failure
    if job is not None and running:
        if observed.pending_end is None:  # recorded first: an exit 0 after our stop is no success
            return EndAttempt(
                attempt=observed.attempt, cause=EndCause.LIMIT, why=limit, step=find_furthest_step(observed.hosts)
            )
        if trouble is None or trouble.action != "StopJob":
            folder = job.folder(observed.attempt)
            return StopJob(job=folder, ended_by=EndedBy.LIMIT, why=limit, grace=job.limit_grace, ranks=running)
    elif job is not None and (own := decide_job.conclude_own_failure(desired, observed)) is not None:
        return own
    step = NextStep(words="raise `limits` in the task, then launch again")
    if observed.spent_budget:
        step = NextStep("orch budget", f"shows what is left; with more money: {name_command_again(desired, observed)}")
    elif may_resume(desired, observed):
        step = resume_step(desired, observed, "; the limit starts again")
    return Conclude(
        status=Exit.TIMEOUT,
        code=LIMIT_CODE,
        what=f"'{desired.cluster}': {limit}",
        why="; ".join(("its machines are ended", *decide_job.list_own_ends(desired, observed))),
        next_step=step,
    )


def _wind_up(desired: Run, observed: Observed, facts: Facts) -> Step:
    """Take the machines down where that was requested, then return the recorded result."""
    outcome = observed.outcome
    assert outcome is not None  # noqa: S101  # the caller checks it
    limit = outcome.what if outcome.code == LIMIT_CODE else limits.find_reached_limit(desired, observed)
    if desired.teardown is TeardownPolicy.DOWN or limit is not None:
        why = limit or "the job is over and --down was given"
        step = _unanswered_down(desired, observed) if observed.started else None
        step = step or decide_slice.decide_end_step(desired.cluster, observed, facts, desired.budgets, why)
        if step is not None:
            return step
    if outcome.status == Exit.OK:
        return Done(outcome.what)
    return GiveUp(
        code=outcome.code, status=outcome.status, what=outcome.what, why=outcome.why, next_step=outcome.next_step
    )


def _down(desired: Down, observed: Observed, facts: Facts) -> Step:
    step = _unanswered_down(desired, observed) if observed.running_job and not desired.abandon else None
    step = step or decide_slice.decide_end_step(desired.cluster, observed, facts, desired.budgets, "down was requested")
    return step or Done(f"cluster '{desired.cluster}' is deleted")


def _unanswered_down(desired: Run | Down, observed: Observed) -> Step | None:
    """Wait for the user's own hosts that may run a program, since nothing ends these machines; None for all others."""
    intent, silent = observed.current, [host for host in observed.hosts if host.contact is not Contact.OK]
    if intent is None or not isinstance(intent.candidate.market, Owned) or intent.state is not IntentState.ACCEPTED:
        return None
    if not silent:
        return None
    abandon = f"orch down {desired.cluster} --abandon   leaves the program there as it is"
    if (refused := find_other_version(desired.cluster, observed.hosts, end=abandon)) is not None:
        return refused
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.lost_deadline
    if observed.now < until and any(host.contact not in (Contact.DENIED, Contact.IDENTITY) for host in silent):
        return wait_for_contact(observed.hosts, until)
    return GiveUp(
        code="host-lost",
        status=Exit.HOST_LOST,
        what=f"the program of '{desired.cluster}' may still run on {format_hosts(host.rank for host in silent)}",
        why=silent[0].silence,
        next_step=NextStep(
            f"orch down {desired.cluster}",
            f"when it answers, or leave it as it is: orch down {desired.cluster} --abandon"
            + (f"\n{silent[0].remedy}" if silent[0].remedy else ""),
        ),
    )


def _stop(desired: Stop, observed: Observed, facts: Facts) -> Step:
    intent = observed.current
    if intent is None or intent.state is not IntentState.ACCEPTED:
        return _nothing_here(desired.cluster)
    if (trouble := decide_slice.give_up_on_failure(observed)) is not None:
        return trouble
    match observed.slice_state:
        case SliceState.STOPPED:
            return Done(f"cluster '{desired.cluster}' is stopped")
        case SliceState.STOPPING | SliceState.UNCLEAR | SliceState.CREATING | SliceState.STARTING:
            until = decide_slice.slice_deadline(observed, intent, desired.budgets.end_deadline)
            return decide_slice.wait_for_slice(desired.cluster, observed, until)
        case SliceState.READY if (
            wait := decide_slice.wait_after_request(observed, intent, desired.budgets)
        ) is not None:
            return wait
        case SliceState.READY:
            return StopSlice(
                intent.name, facts.requests[intent.candidate.provider].stop_request(intent.name, intent.candidate)
            )
        case _:
            return _unfit(desired.cluster, observed)


def _start(desired: Start, observed: Observed, facts: Facts) -> Step:
    intent = observed.current
    if intent is None or intent.state is not IntentState.ACCEPTED:
        return _nothing_here(desired.cluster)
    if (trouble := decide_slice.give_up_on_failure(observed)) is not None:
        return trouble
    match observed.slice_state:
        case SliceState.READY:
            return Done(f"cluster '{desired.cluster}' is up")
        case SliceState.STARTING | SliceState.CREATING | SliceState.STOPPING | SliceState.UNCLEAR:
            until = decide_slice.slice_deadline(observed, intent, desired.budgets.boot_deadline)
            return decide_slice.wait_for_slice(desired.cluster, observed, until)
        case SliceState.STOPPED:
            return decide_slice.start_slice(desired.cluster, observed, facts, desired.budgets, intent)
        case _:
            return _unfit(desired.cluster, observed)


def _cancel(desired: Cancel, observed: Observed) -> Step:
    if observed.failure is not None:
        trouble = observed.failure
        status = Exit.HOST_LOST if trouble.connection_lost else Exit.FAILURE
        return GiveUp(code=trouble.code, status=status, what=trouble.what, why=trouble.why, next_step=trouble.next_step)
    if observed.current is not None and observed.slice_state is SliceState.UNCLEAR:
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return decide_slice.wait_for_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
    if observed.current is None or observed.slice_state is not SliceState.READY:
        return Done("nothing is running: the cluster has no hosts now")
    if (refused := find_other_version(desired.cluster, observed.hosts)) is not None:
        return refused
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running:
        return StopJob(
            job=desired.folder,
            ended_by=EndedBy.CANCEL,
            why="cancel was requested",
            grace=desired.grace,
            ranks=running,
        )
    silent = [host.rank for host in observed.hosts if host.contact is not Contact.OK]
    if silent:
        return _unanswered(desired, observed, silent)
    number = desired.folder.partition("-")[0]
    name = desired.cluster
    return Done(f"job {number} is ended; the hosts of '{name}' stay, until: orch down {name}")


def _unanswered(desired: Cancel, observed: Observed, silent: list[int]) -> Step:
    """Wait for hosts that do not answer: an unknown state is never reported as stopped."""
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.lost_deadline
    if observed.now < until:
        return wait_for_contact(observed.hosts, until)
    return GiveUp(
        code="host-lost",
        status=Exit.HOST_LOST,
        what=f"{format_hosts(silent)} of '{desired.cluster}' did not answer, so the job may still run there",
        why=f"no answer for {desired.budgets.lost_deadline:.0f} s",
        next_step=NextStep(
            f"orch status {desired.cluster}", f"then: orch cancel {desired.cluster}   or: orch down {desired.cluster}"
        ),
    )


def _nothing_here(cluster: str) -> GiveUp:
    return GiveUp(
        code="not-found",
        status=Exit.NOT_FOUND,
        what=f"cluster '{cluster}' has no machines",
        next_step=NextStep("orch status"),
    )


def _unfit(cluster: str, observed: Observed) -> GiveUp:
    return GiveUp(
        code="cloud",
        status=Exit.FAILURE,
        what=f"cluster '{cluster}' is {observed.slice_state}",
        why=observed.slice_reason,
        next_step=NextStep(f"orch down {cluster}", "then launch it again"),
    )
