"""decide(): the one place that chooses what happens next. Pure: no I/O, no clock, no randomness.

The order of the questions is the order of the file: is it over already, or its time up; is there a slice; do its hosts
answer; do they hold the files; did setup pass; is the program running, and how did it end. The state table is in
docs/design.md.
"""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan import decide_adopt, decide_ends, decide_hosts, decide_job, decide_slice, limits
from orchestrator.plan.actions import Conclude, EndAttempt, StopJob, StopSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Adopt, After, Cancel, Desired, Down, Run, Start, Stop
from orchestrator.plan.evidence import furthest
from orchestrator.plan.facts import Facts
from orchestrator.plan.limits import LIMIT
from orchestrator.plan.observed import Contact, IntentState, Observed
from orchestrator.plan.ranks import host_words
from orchestrator.plan.steps import Done, GiveUp, Step, Wait, WaitFor
from orchestrator.slices import SliceState


def decide(desired: Desired, observed: Observed, facts: Facts) -> Step:
    """The next step towards `desired`. Called again after every step with a fresh look at the world."""
    match desired:
        case Run():
            return decide_adopt.spared(desired, observed, _run(desired, observed, facts))
        case Down():
            return _down(desired, observed, facts)
        case Stop():
            return _stop(desired, observed, facts)
        case Start():
            return _start(desired, observed, facts)
        case Cancel():
            return _cancel(desired, observed)
        case Adopt():
            return decide_adopt.adopt(desired, observed, facts)


def _run(desired: Run, observed: Observed, facts: Facts) -> Step:
    if observed.outcome is not None:
        return _wind_up(desired, observed, facts)
    if (limit := _limit(desired, observed)) is not None and not decide_job.ended_well(desired, observed):
        return _at_limit(desired, observed, limit)
    if observed.wanted_down:
        return GiveUp(
            "conflict",
            Exit.CONFLICT,
            f"cluster '{desired.cluster}' was to be taken down, and the command that began it did not end it",
            next_step=f"orch down {desired.cluster}",
        )
    if observed.cancelled and not decide_job.ended_well(desired, observed):
        return _cancelled(desired, observed)
    if (why := decide_ends.over(desired, observed)) is not None and not decide_job.ended_well(desired, observed):
        return decide_ends.at_end(desired, observed, facts, why)
    return (
        decide_slice.have_slice(desired, observed, facts)
        or decide_hosts.have_hosts(desired, observed, facts)
        or decide_job.have_result(desired, observed)
    )


def _limit(desired: Run, observed: Observed) -> str | None:
    """The limit that ends this run, in words. Once it was the verdict on an attempt, it stays so."""
    verdict = observed.condemned
    if verdict is not None and verdict.cause is EndCause.LIMIT:
        return verdict.why
    return limits.reached(desired, observed) or limits.timer_was_first(desired, observed)


def _cancelled(desired: Run, observed: Observed) -> Step:
    """Somebody asked for the end of this job: its program is stopped wherever it can be reached."""
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    job, trouble = desired.job, observed.trouble
    if job is not None and running and (trouble is None or trouble.step != "StopJob"):
        return StopJob(job.folder(observed.attempt), "cancel was asked", job.stop_grace, running)
    intent, why = observed.current, ""
    if observed.started and intent is not None and intent.state is IntentState.ACCEPTED:
        if observed.slice_state is SliceState.UNCLEAR:  # it may run all the same
            since = observed.unclear_since if observed.unclear_since is not None else observed.now
            return decide_slice.wait_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
        silent = [host.rank for host in decide_hosts.chosen(desired, observed) if host.contact is not Contact.OK]
        since = observed.contact_since if observed.contact_since is not None else observed.now
        until = since + desired.budgets.lost_deadline
        if silent and observed.now < until:
            return Wait(WaitFor.CONTACT, f"waiting for SSH on {host_words(silent)}", until)
        left = tuple(sorted({*silent, *running}))
        why = f"it may still run on {host_words(left)}, where it could not be stopped" if left else ""
    back = f"orch resume {desired.cluster}" if desired.checkpoint_uri is not None else ""
    return Conclude(Exit.INTERRUPTED, "cancelled", f"job {desired.job_id} was cancelled", why, back)


def _at_limit(desired: Run, observed: Observed, limit: str) -> Step:
    """The program may save what it has, then all ends: that is what limits are for."""
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    job, trouble = desired.job, observed.trouble
    if job is not None and running:
        if observed.condemned is None:  # on record first: what the program does when it is stopped is no success
            return EndAttempt(observed.attempt, EndCause.LIMIT, limit, furthest(observed.hosts))
        if trouble is None or trouble.step != "StopJob":
            return StopJob(job.folder(observed.attempt), limit, job.limit_grace, running)
    back = f"orch resume {desired.cluster}   goes on from the newest checkpoint; the limit counts anew"
    more = "raise `limits` in the task, then launch again"
    return Conclude(
        Exit.TIMEOUT,
        LIMIT,
        f"'{desired.cluster}': {limit}",
        "its machines are ended",
        back if desired.checkpoint_uri is not None else more,
    )


def _wind_up(desired: Run, observed: Observed, facts: Facts) -> Step:
    """The result is recorded; take the machines down when that was asked, then say the result."""
    outcome = observed.outcome
    assert outcome is not None  # noqa: S101  # the caller has just looked
    limit = outcome.what if outcome.code == LIMIT else limits.reached(desired, observed)
    if desired.after is After.DOWN or limit is not None:
        why = limit or "the job is over and --down was asked"
        step = decide_slice.end_all(observed, facts, desired.budgets, why)
        if step is not None:
            return step
    if outcome.status == Exit.OK:
        return Done(outcome.what)
    return GiveUp(outcome.code, outcome.status, outcome.what, outcome.why, outcome.next_step)


def _down(desired: Down, observed: Observed, facts: Facts) -> Step:
    step = decide_slice.end_all(observed, facts, desired.budgets, "down was asked")
    return step or Done(f"cluster '{desired.cluster}' is gone")


def _stop(desired: Stop, observed: Observed, facts: Facts) -> Step:
    intent = observed.current
    if intent is None or intent.state is not IntentState.ACCEPTED:
        return _nothing_here(desired.cluster)
    if (trouble := decide_slice.last_trouble(observed)) is not None:
        return trouble
    match observed.slice_state:
        case SliceState.STOPPED:
            return Done(f"cluster '{desired.cluster}' is stopped")
        case SliceState.STOPPING | SliceState.UNCLEAR | SliceState.CREATING | SliceState.STARTING:
            until = decide_slice.patience(observed, intent, desired.budgets.end_deadline)
            return decide_slice.wait_slice(desired.cluster, observed, until)
        case SliceState.READY if (wait := decide_slice.just_asked(observed, intent)) is not None:
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
    if (trouble := decide_slice.last_trouble(observed)) is not None:
        return trouble
    match observed.slice_state:
        case SliceState.READY:
            return Done(f"cluster '{desired.cluster}' is up")
        case SliceState.STARTING | SliceState.CREATING | SliceState.STOPPING | SliceState.UNCLEAR:
            until = decide_slice.patience(observed, intent, desired.budgets.boot_deadline)
            return decide_slice.wait_slice(desired.cluster, observed, until)
        case SliceState.STOPPED:
            return decide_slice.start(desired.cluster, observed, facts, desired.budgets, intent)
        case _:
            return _unfit(desired.cluster, observed)


def _cancel(desired: Cancel, observed: Observed) -> Step:
    if observed.trouble is not None:
        trouble = observed.trouble
        status = Exit.HOST_LOST if trouble.lost else Exit.FAILURE
        return GiveUp(trouble.code, status, trouble.what, trouble.why, trouble.next_step)
    if observed.current is not None and observed.slice_state is SliceState.UNCLEAR:
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return decide_slice.wait_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
    if observed.current is None or observed.slice_state is not SliceState.READY:
        return Done("nothing is running: the cluster has no hosts now")
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running:
        return StopJob(desired.folder, "cancel was asked", desired.grace, running)
    silent = [host.rank for host in observed.hosts if host.contact is not Contact.OK]
    if silent:
        return _unanswered(desired, observed, silent)
    return Done(f"nothing of job {desired.folder.partition('-')[0]} runs on '{desired.cluster}' any more")


def _unanswered(desired: Cancel, observed: Observed, silent: list[int]) -> Step:
    """Whether the job runs on these hosts cannot be known: not a reason to call it stopped."""
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.lost_deadline
    if observed.now < until:
        return Wait(WaitFor.CONTACT, f"waiting for SSH on {host_words(silent)}", until)
    return GiveUp(
        "host-lost",
        Exit.HOST_LOST,
        f"{host_words(silent)} of '{desired.cluster}' did not answer, so the job may still run there",
        f"no answer for {desired.budgets.lost_deadline:.0f} s",
        f"orch status {desired.cluster}   then again: orch cancel {desired.cluster}   or: orch down {desired.cluster}",
    )


def _nothing_here(cluster: str) -> GiveUp:
    return GiveUp("not-found", Exit.NOT_FOUND, f"cluster '{cluster}' has no machines", next_step="orch status")


def _unfit(cluster: str, observed: Observed) -> GiveUp:
    return GiveUp(
        "cloud",
        Exit.FAILURE,
        f"cluster '{cluster}' is {observed.slice_state}",
        observed.slice_reason,
        f"orch down {cluster}   (then launch it again)",
    )
