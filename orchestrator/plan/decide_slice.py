"""Decide about the slice: create it, wait for it, replace it, end it."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.messages import count_noun
from orchestrator.next_step import NextStep
from orchestrator.plan import recovery
from orchestrator.plan.actions import (
    Action,
    Conclude,
    CreateSlice,
    EndSlice,
    ForgetSlice,
    NextAttempt,
    StartSlice,
    StopJob,
)
from orchestrator.plan.causes import LOSSES, SLICE_LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.limits import LIMIT_CODE, format_time
from orchestrator.plan.observed import Intent, IntentState, Observed
from orchestrator.plan.refusals import (
    Refusal,
    choose_ending,
    choose_next_step,
    explain_refusals,
    is_covered,
    is_hopeless,
)
from orchestrator.plan.steps import GiveUp, Step, Wait, WaitFor
from orchestrator.plan.ways_back import step_after_failure, step_after_loss
from orchestrator.slices import Candidate, CapacityBlock, Owned, SliceSpec, SliceState
from orchestrator.values import Text

CREATE_TRIES = 3
STUCK_FACTOR = 8  # x resend_after: two minutes
STOP_TRIES = 3
ASK_AGAIN_AFTER = 2.0  # seconds; a start or stop takes effect only after a moment
LABEL_DIGITS = 63  # of a digest: the longest value of a Google label, see providers/google/labels.py
_UNUSABLE = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.ABSENT})


def decide_slice_step(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    """Return the next step until the slice is READY; None when it is."""
    intent = observed.current
    if intent is None:
        return _charge_loss(desired, observed) or _create_next(desired, observed, facts)
    if not desired.create and (intent.state is not IntentState.ACCEPTED or observed.slice_state in _UNUSABLE):
        return _refuse_to_create(desired, observed, intent)
    if intent.state is IntentState.PLANNED:
        return _create_again(desired, observed, facts, intent)
    if intent.state is IntentState.ENDING:
        return _wait_until_deleted(desired.cluster, observed, facts, desired.budgets, intent)
    return _accepted(desired, observed, facts, intent)


def refuse_command(desired: Run, observed: Observed, facts: Facts) -> GiveUp | None:
    """Return why a command (exec) cannot run on the slice as it is, so that no job is opened; None when it may."""
    step = None if desired.create else decide_slice_step(desired, observed, facts)
    if not isinstance(step, Conclude):
        return None
    return GiveUp(code=step.code, status=step.status, what=step.what, why=step.why, next_step=step.next_step)


def decide_end_step(cluster: str, observed: Observed, facts: Facts, budgets: Budgets, why: str) -> Step | None:
    """Return the next step until no slice is left; None when the provider reports it as absent."""
    intent = observed.current
    if intent is None:
        return None
    if intent.state is IntentState.ENDING:
        return _wait_until_deleted(cluster, observed, facts, budgets, intent)
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    owned = isinstance(intent.candidate.market, Owned) and observed.running_job
    if owned and intent.state is IntentState.ACCEPTED and observed.slice_state is SliceState.UNCLEAR:
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return wait_for_slice(cluster, observed, since + budgets.unclear_deadline)
    if owned and running:
        # Nothing ends the user's own machines, so what we started on them has to be stopped.
        if (trouble := observed.failure) is not None and trouble.action == "StopJob" and trouble.times >= STOP_TRIES:
            return give_up_on_failure(observed)
        return StopJob(job=observed.running_job, ended_by=EndedBy.DOWN, why=why, grace=10.0, ranks=running)
    return end_slice(facts, intent, EndCause.REQUESTED, why)


def wait_for_slice(cluster: str, observed: Observed, until: float) -> Step:
    """Wait for the provider, or give up when the deadline has passed."""
    state = str(observed.slice_state) + (f" ({observed.slice_reason})" if observed.slice_reason else "")
    if observed.now < until:
        clear = observed.slice_state is not SliceState.UNCLEAR
        return Wait(on=WaitFor.SLICE, reason=f"'{cluster}' is {state}", until=until, repeat=clear)
    return GiveUp(
        code="timeout",
        status=Exit.TIMEOUT,
        what=f"'{cluster}' is still {state}",
        why="the deadline has passed",
        next_step=NextStep(f"orch status {cluster}", f"then run the same command again, or: orch down {cluster}"),
    )


def slice_deadline(observed: Observed, intent: Intent, seconds: float) -> float:
    """Return until when a change of the slice may take (epoch seconds).

    It counts from the last request, from the last time the slice was healthy, or from the start of billing, whichever
    is latest: a day-old record must not end a change that began a minute ago, and the machines of a capacity block
    start long after their request.
    """
    return max(intent.since, intent.last_sent, intent.billed_from or 0.0, observed.healthy_at or 0.0) + seconds


def give_up_on_failure(observed: Observed) -> GiveUp | None:
    """Return the failure of the last action as the end of the command; None when it did not fail."""
    trouble = observed.failure
    if trouble is None:
        return None
    return GiveUp(
        code=trouble.code, status=trouble.status, what=trouble.what, why=trouble.why, next_step=trouble.next_step
    )


def _accepted(desired: Run, observed: Observed, facts: Facts, intent: Intent) -> Step | None:
    cluster, budgets = desired.cluster, desired.budgets
    reason = observed.slice_reason or str(observed.slice_state)
    match observed.slice_state:
        case SliceState.READY:
            return _name_others(desired, observed, facts, intent)
        case SliceState.CREATING | SliceState.STARTING:
            until = slice_deadline(observed, intent, budgets.boot_deadline)
            if observed.slice_until is not None:  # a queue has its own deadline, and machines boot after it
                until = max(until, observed.slice_until + budgets.boot_deadline)
            if observed.now >= until and desired.create:
                return end_slice(facts, intent, _failure_cause(observed), f"not ready in time: {reason}")
            return _wait_for_block_start(cluster, observed, intent, until) or wait_for_slice(cluster, observed, until)
        case SliceState.STOPPED if desired.create:
            return start_slice(cluster, observed, facts, budgets, intent)
        case SliceState.STOPPED:
            return Conclude(
                status=Exit.NOT_FOUND,
                code="not-found",
                what=f"cluster '{cluster}' is stopped",
                next_step=NextStep(f"orch start {cluster}"),
            )
        case SliceState.STOPPING | SliceState.ENDING:
            return wait_for_slice(cluster, observed, slice_deadline(observed, intent, budgets.end_deadline))
        case SliceState.PREEMPTED:
            return end_slice(facts, intent, EndCause.PREEMPTED, reason)
        case SliceState.FAILED:
            return end_slice(facts, intent, _failure_cause(observed), observed.slice_refusal or reason)
        case SliceState.ABSENT:
            return _forget_absent(desired, observed, intent)
        case SliceState.UNCLEAR:
            since = observed.unclear_since if observed.unclear_since is not None else observed.now
            return wait_for_slice(cluster, observed, since + budgets.unclear_deadline)


def _forget_absent(desired: Run, observed: Observed, intent: Intent) -> ForgetSlice:
    """Close the record of a slice that something else deleted, and replace it only where orch was watching it.

    Another installation may have taken it over and ended it meanwhile: its labels are deleted with the machines.
    """
    if observed.unwatched_since is None:
        return ForgetSlice(intent.name, EndCause.PREEMPTED, "it was deleted outside orch")
    last = format_time(observed.unwatched_since, observed.now)
    why = f"the machines of '{desired.cluster}' are absent, and orch looked at them last at {last}"
    return ForgetSlice(intent.name, EndCause.PREEMPTED, f"it is absent, and was last seen at {last}", jobs_end=why)


def _name_others(desired: Run, observed: Observed, facts: Facts, intent: Intent) -> Step | None:
    """Return the end of the record of the user's own machines when the task now names others, such as a corrected one.

    Nothing ends the machines, and a program that has started is never left behind on them.
    """
    has, running = intent.candidate, any(host.job is JobPhase.RUNNING for host in observed.hosts)
    if not isinstance(has.market, Owned) or not desired.create or observed.started or running:
        return None
    alike = [one for one in desired.candidates if replace(one, details=has.details) == has]
    if not alike or any(one.details == has.details for one in alike):
        return None
    return end_slice(facts, intent, EndCause.REQUESTED, "the task names other addresses for its hosts now")


def _wait_for_block_start(cluster: str, observed: Observed, intent: Intent, until: float) -> Wait | None:
    """Wait for the start of a capacity block; None for other markets, and after the start."""
    begins = (
        observed.slice_until if observed.slice_until is not None else intent.billed_from
    )  # recorded once it was seen
    if not isinstance(intent.candidate.market, CapacityBlock) or begins is None or observed.now >= begins:
        return None
    reason = f"'{cluster}' waits for its {intent.candidate.market}: it begins at {format_time(begins, observed.now)}"
    return Wait(on=WaitFor.SLICE, reason=reason, until=until, due=begins)


def start_slice(cluster: str, observed: Observed, facts: Facts, budgets: Budgets, intent: Intent) -> Step:
    """Start a stopped slice, with a pause between requests, at most three refusals and a deadline."""
    trouble = observed.failure
    if trouble is not None and trouble.action == "StartSlice" and (trouble.final or trouble.times >= CREATE_TRIES):
        return GiveUp(
            code=trouble.code, status=trouble.status, what=trouble.what, why=trouble.why, next_step=trouble.next_step
        )
    until = max(intent.since, observed.healthy_at or 0.0) + budgets.boot_deadline
    if observed.now >= until:
        return wait_for_slice(cluster, observed, until)
    request = facts.requests[intent.candidate.provider].start_request(intent.name, intent.candidate)
    return wait_after_request(observed, intent, budgets) or StartSlice(intent.name, request)


def wait_after_request(observed: Observed, intent: Intent, budgets: Budgets) -> Wait | None:
    """Return a pause right after a request, whose effect the provider may not show yet; else None."""
    accepted = observed.succeeded is not None  # so the effect is likely to follow: a refused request is sent sooner
    until = intent.last_sent + (budgets.resend_after if accepted else ASK_AGAIN_AFTER)
    if observed.now >= until:
        return None
    return Wait(on=WaitFor.PAUSE, reason="waiting for the effect of the last request", until=until)


def _failure_cause(observed: Observed) -> EndCause:
    """Return the cause of a failed slice: a loss when it had worked, else a broken candidate."""
    return EndCause.HOST_DIED if observed.started else EndCause.BROKEN


def _refuse_to_create(desired: Run, observed: Observed, intent: Intent) -> Action:
    """End a command that may only use existing hosts: it neither finishes a create nor ends a slice."""
    state = observed.slice_state if intent.state is IntentState.ACCEPTED else intent.state
    return Conclude(
        status=Exit.HOST_LOST,
        code="host-lost",
        what=f"cluster '{desired.cluster}' has no hosts to use: it is {state}",
        why=observed.slice_reason,
        next_step=step_after_loss(desired, observed),
    )


def _wait_until_deleted(cluster: str, observed: Observed, facts: Facts, budgets: Budgets, intent: Intent) -> Step:
    """Wait until the provider reports the slice as absent; send the request again where it has no effect."""
    if observed.slice_state is SliceState.ABSENT:
        return ForgetSlice(intent.name, intent.cause or EndCause.REQUESTED, intent.why)
    trouble = observed.failure
    # Not from `last_sent`: repeated requests must not move the deadline.
    until = max(intent.since, observed.healthy_at or 0.0) + budgets.end_deadline
    if trouble is not None and trouble.final and observed.unclear_since is not None:
        until = min(until, observed.unclear_since + budgets.unclear_deadline)  # both refused: more time does not help
    if trouble is not None and (observed.now >= until or (trouble.final and trouble.times >= CREATE_TRIES)):
        step = trouble.next_step
        if trouble.action == CreateSlice.__name__:
            later = f"then, because an earlier request may have made machines: orch down {cluster}"
            step = NextStep(step.command, f"{step.words}\n{later}".strip())
        return GiveUp(code=trouble.code, status=trouble.status, what=trouble.what, why=trouble.why, next_step=step)
    quiet = observed.now - max(intent.since, intent.last_sent)
    # A request without effect is repeated; a slice that is reported as ending may be stuck, and is asked later.
    interval = budgets.resend_after * (STUCK_FACTOR if observed.slice_state is SliceState.ENDING else 1)
    if observed.slice_state is not SliceState.UNCLEAR and quiet >= interval and observed.now < until:
        return end_slice(facts, intent, intent.cause or EndCause.REQUESTED, intent.why)
    return wait_for_slice(cluster, observed, until)


def _create_again(desired: Run, observed: Observed, facts: Facts, intent: Intent) -> Action:
    trouble = observed.failure
    if trouble is not None and trouble.times >= CREATE_TRIES:
        # It is unknown whether the create took effect; ending covers both cases.
        return end_slice(facts, intent, EndCause.BROKEN, f"{trouble.what}: {trouble.why}")
    return _create(desired, facts, intent.candidate, intent.generation, intent.name)


def _create_next(desired: Run, observed: Observed, facts: Facts) -> Action | Wait:
    if not desired.create:
        return Conclude(
            status=Exit.NOT_FOUND,
            code="not-found",
            what=f"cluster '{desired.cluster}' has no machines",
            next_step=NextStep(words=f"orch launch, or orch resume, with -c {desired.cluster}"),
        )
    trouble = observed.failure
    if trouble is not None and (trouble.final or (trouble.action == "CreateSlice" and trouble.times >= CREATE_TRIES)):
        return Conclude(
            status=trouble.status, code=trouble.code, what=trouble.what, why=trouble.why, next_step=trouble.next_step
        )
    places = recovery.order_candidates(desired, observed)
    if not places and observed.over_budget:
        _, over = observed.over_budget[0]
        return Conclude(status=over.status, code=over.code, what=over.what, why=over.why, next_step=over.next_step)
    if not places:
        return Conclude(
            status=Exit.TIMEOUT,
            code=LIMIT_CODE,
            what=f"'{desired.cluster}': the time of every candidate in its task is over",
            next_step=NextStep(words="name other machines in the task, or another block, then launch again"),
        )
    until = recovery.pause_until(desired, observed)
    if observed.now < until:
        return Wait(on=WaitFor.PAUSE, reason=f"a short pause before attempt {observed.attempt}", until=until)
    refused = recovery.list_refusals(observed)
    for candidate in places:
        if candidate not in refused and not is_covered(candidate, refused):
            return _create_new(desired, observed, facts, candidate)
    return _ask_again(desired, observed, facts, refused)


def _ask_again(desired: Run, observed: Observed, facts: Facts, refused: dict[Candidate, list[Intent]]) -> Action | Wait:
    """Retry the refused candidate whose pause ends first, as long as the user wants to wait for capacity."""
    places = recovery.order_candidates(desired, observed)
    refused = {candidate: refused[candidate] for candidate in places if candidate in refused}
    again = sorted((recovery.retry_at(desired, times), place) for place, times in enumerate(refused.values()))
    began = min(times[0].since for times in refused.values())
    budgets = desired.budgets
    longest = budgets.capacity_wait if observed.attempt > 1 or observed.ended else budgets.capacity_wait_first
    last = [times[-1] for times in refused.values()]
    if observed.now >= began + longest or is_hopeless(last):
        return _conclude_refused(desired, last, len(places))
    when, place = again[0]
    candidate, times = list(refused.items())[place]
    if observed.now < when:
        reason = (
            f"no machines in {count_noun(len(refused), 'place')} ({Refusal.parse(times[-1].why).why}); "
            f"next request: {candidate.where}"
        )
        stops = began + longest
        return Wait(on=WaitFor.PAUSE, reason=reason, until=min(when, stops), due=min(when, stops), stops=stops)
    return _create_new(desired, observed, facts, candidate)


def _conclude_refused(desired: Run, last: list[Intent], places: int) -> Conclude:
    code, status = choose_ending(last)
    where = f"any of {count_noun(places, 'place')}" if places > 1 else "the only place that was allowed"
    what = f"no machines for '{desired.cluster}' in {where}"
    if code != "capacity":
        what = f"the machines for '{desired.cluster}' were refused{f' in all of {places} places' if places > 1 else ''}"
    return Conclude(
        status=status,
        code=code,
        what=what,
        why=explain_refusals(last),
        next_step=NextStep.parse(choose_next_step(last, "try another zone or market, or the same command again later")),
    )


def _next_generation(observed: Observed) -> int:
    return max((intent.generation for intent in observed.intents), default=0) + 1


def _charge_loss(desired: Run, observed: Observed) -> Action | None:
    """Charge the loss of the last slice once, and end the run when the budget is spent."""
    lost = [intent for intent in observed.intents if intent.cause in SLICE_LOSSES]
    if not lost:
        return None
    last = lost[-1]
    if any(ended.generation == last.generation for ended in observed.ended):
        return None
    if last.generation <= observed.generation_at_open and not observed.started:
        return None  # it was lost before this job used it
    if (verdict := observed.pending_end) is not None:  # lost while its program was being stopped for another cause
        status, rank, step = end_status(verdict.cause), verdict.rank, verdict.step
        return next_attempt_or_end(
            desired, observed, verdict.cause, verdict.why, last.generation, status, rank=rank, step=step
        )
    return next_attempt_or_end(desired, observed, last.cause or EndCause.PREEMPTED, last.why, last.generation)


def end_status(cause: EndCause) -> int:
    """Return the exit status of a run whose last attempt ended for this cause."""
    if cause is EndCause.HUNG:
        return Exit.TIMEOUT
    return Exit.HOST_LOST if cause in SLICE_LOSSES else Exit.FAILURE


def next_attempt_or_end(
    desired: Run,
    observed: Observed,
    cause: EndCause,
    why: str,
    generation: int | None,
    status: int = Exit.HOST_LOST,
    last_line: str = "",
    *,
    remedy: str = "",
    exit_code: int | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> Action:
    """Open the next attempt where the budget for this cause allows it; else record the end."""
    budgets = desired.budgets
    budget, used = recovery.restart_budget(cause, budgets), recovery.count_restarts(cause, observed, budgets)
    if recovery.is_storage_failure(cause, exit_code, budgets) and budget <= budgets.storage:
        budget, used = budgets.storage, recovery.count_storage_restarts(observed, budgets)
    by_loss = generation is not None and observed.pending_end is None
    allowed = recovery.may_restart(cause, observed, budgets, by_loss=by_loss, exit_code=exit_code)
    if allowed and exit_code not in (*budgets.fail_on, *budgets.final):
        return NextAttempt(
            attempt=observed.attempt + 1,
            cause=cause,
            why=why,
            generation=generation,
            exit_code=exit_code,
            rank=rank,
            step=step,
        )
    what = f"the hosts of '{desired.cluster}' were lost" if by_loss else why
    reasons = [why] if by_loss else [last_line] if last_line else []
    if exit_code in budgets.fail_on:
        reasons.append(f"exit {exit_code} is one of fail_on_exit_codes: no restart")
    elif exit_code in budgets.final:
        reasons.append(f"by exit {exit_code} the program asks for no restart")
    elif budget:
        reasons.append(f"{used} of {budget} restarts for this cause were used")
    return Conclude(
        status=status,
        code="host-lost" if cause in LOSSES and status == Exit.HOST_LOST else "program-failed",
        what=what,
        why="; ".join(reasons),
        next_step=step_after_failure(desired, observed, cause, remedy),
    )


def _create_new(desired: Run, observed: Observed, facts: Facts, candidate: Candidate) -> CreateSlice:
    generation = _next_generation(observed)
    return _create(desired, facts, candidate, generation, f"{desired.slice_stem}-{generation}")


def _create(desired: Run, facts: Facts, candidate: Candidate, generation: int, name: str) -> CreateSlice:
    spec = SliceSpec(
        cluster=desired.cluster,
        name=name,
        token=Text.of(desired.uid, f"-{generation}"),
        candidate=candidate,
        labels=(  # ours last: no label of the user may say whose the machines are
            *((key, Text.of(value)) for key, value in desired.labels),
            ("orch-installation", desired.installation),
            ("orch-cluster", Text.of(desired.cluster)),
            ("orch-intent", Text.of(desired.uid, f"-{generation}")),
            *_list_owner_labels(desired),
            *((("orch-record", Text.of(desired.record[:LABEL_DIGITS])),) if desired.record else ()),
        ),
    )
    return CreateSlice(spec, generation, facts.requests[candidate.provider].create_request(spec))


def _list_owner_labels(desired: Run) -> tuple[tuple[str, Text], ...]:
    """Return the labels that say in which project the machines are, and whose, for people and for `recover`."""
    found = (("orch-project", desired.project), ("orch-member", desired.member))
    return tuple((key, Text.of(value)) for key, value in found if value)


def end_slice(facts: Facts, intent: Intent, cause: EndCause, why: str) -> EndSlice:
    """Return the action that ends the slice of an intent."""
    request = facts.requests[intent.candidate.provider].end_request(intent.name, intent.candidate)
    return EndSlice(name=intent.name, cause=cause, why=why, request=request)
