"""Decisions about the slice: create it, wait for it, replace it, end it."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
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
from orchestrator.plan.limits import LIMIT, moment
from orchestrator.plan.observed import Intent, IntentState, Observed
from orchestrator.plan.steps import GiveUp, Step, Wait, WaitFor
from orchestrator.slices import Candidate, CapacityBlock, Owned, SliceSpec, SliceState
from orchestrator.values import Text

CREATE_TRIES = 3
STUCK_FACTOR = 8  # x resend_after: two minutes
STOP_TRIES = 3
ASK_AGAIN_AFTER = 2.0  # seconds; a start or stop shows its effect only after a moment
_OF_NO_USE = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.ABSENT})


def have_slice(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    """The next step towards a slice that is READY; None when it is."""
    intent = observed.current
    if intent is None:
        return _charge_loss(desired, observed) or _create_next(desired, observed, facts)
    if not desired.create and (intent.state is not IntentState.ACCEPTED or observed.slice_state in _OF_NO_USE):
        return _not_for_a_guest(desired, observed, intent)
    if intent.state is IntentState.PLANNED:
        return _create_again(desired, observed, facts, intent)
    if intent.state is IntentState.ENDING:
        return _until_gone(observed, facts, desired.budgets, intent)
    return _accepted(desired, observed, facts, intent)


def end_all(observed: Observed, facts: Facts, budgets: Budgets, why: str) -> Step | None:
    """The next step towards no slice at all; None when the provider has said that there is none."""
    intent = observed.current
    if intent is None:
        return None
    if intent.state is IntentState.ENDING:
        return _until_gone(observed, facts, budgets, intent)
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    owned = isinstance(intent.candidate.market, Owned) and observed.running_job
    if owned and intent.state is IntentState.ACCEPTED and observed.slice_state is SliceState.UNCLEAR:
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return wait_slice(intent.name.removesuffix(f"-{intent.generation}"), observed, since + budgets.unclear_deadline)
    if owned and running:
        # Nothing ends the user's own machines, so what we started on them has to be stopped.
        if (trouble := observed.trouble) is not None and trouble.step == "StopJob" and trouble.times >= STOP_TRIES:
            return last_trouble(observed)
        return StopJob(observed.running_job, why, 10.0, running)
    return _end(facts, intent, EndCause.ASKED, why)


def wait_slice(cluster: str, observed: Observed, until: float) -> Step:
    """Wait for the provider, or give up when the deadline has passed."""
    words = str(observed.slice_state) + (f" ({observed.slice_reason})" if observed.slice_reason else "")
    if observed.now < until:
        return Wait(WaitFor.SLICE, f"'{cluster}' is {words}", until)
    return GiveUp(
        "timeout",
        Exit.TIMEOUT,
        f"'{cluster}' is still {words}",
        "the deadline has passed",
        f"orch status {cluster}   then run the same command again, or: orch down {cluster}",
    )


def patience(observed: Observed, intent: Intent, seconds: float) -> float:
    """Until when the slice may be on its way: since its request was sent, or since all was well with it.

    A record that is a day old is no reason to give up on something that began a minute ago. born: a capacity block's
    machines are there from its start on, long after the request.
    """
    return max(intent.since, intent.touched, intent.born or 0.0, observed.well_at or 0.0) + seconds


def last_trouble(observed: Observed) -> GiveUp | None:
    trouble = observed.trouble
    if trouble is None:
        return None
    return GiveUp(trouble.code, trouble.status, trouble.what, trouble.why, trouble.next_step)


def end_for(facts: Facts, intent: Intent, cause: EndCause, why: str) -> EndSlice:
    return _end(facts, intent, cause, why)


def _accepted(desired: Run, observed: Observed, facts: Facts, intent: Intent) -> Step | None:
    cluster, budgets = desired.cluster, desired.budgets
    reason = observed.slice_reason or str(observed.slice_state)
    match observed.slice_state:
        case SliceState.READY:
            return None
        case SliceState.CREATING | SliceState.STARTING:
            until = patience(observed, intent, budgets.boot_deadline)
            if observed.slice_until is not None:  # a queue has a patience of its own, and machines boot after it
                until = max(until, observed.slice_until + budgets.boot_deadline)
            if observed.now >= until and desired.create:
                return _end(facts, intent, _spoilt(observed), f"not ready in time: {reason}")
            return _until_it_begins(cluster, observed, intent, until) or wait_slice(cluster, observed, until)
        case SliceState.STOPPED if desired.create:
            return start(cluster, observed, facts, budgets, intent)
        case SliceState.STOPPED:
            return Conclude(
                Exit.NOT_FOUND,
                "not-found",
                f"cluster '{cluster}' is stopped",
                next_step=f"orch start {cluster}",
            )
        case SliceState.STOPPING | SliceState.ENDING:
            return wait_slice(cluster, observed, patience(observed, intent, budgets.end_deadline))
        case SliceState.PREEMPTED:
            return _end(facts, intent, EndCause.PREEMPTED, reason)
        case SliceState.FAILED:
            return _end(facts, intent, _spoilt(observed), reason)
        case SliceState.ABSENT:
            return ForgetSlice(intent.name, EndCause.PREEMPTED, "it is gone, and it was not ended from here")
        case SliceState.UNCLEAR:
            since = observed.unclear_since if observed.unclear_since is not None else observed.now
            return wait_slice(cluster, observed, since + budgets.unclear_deadline)


def _until_it_begins(cluster: str, observed: Observed, intent: Intent, until: float) -> Wait | None:
    """A capacity block is bought for a time to come: what is waited for is its start."""
    begins = observed.slice_until if observed.slice_until is not None else intent.born  # on record once it was seen
    if not isinstance(intent.candidate.market, CapacityBlock) or begins is None or observed.now >= begins:
        return None
    words = f"'{cluster}' waits for its {intent.candidate.market}: it begins at {moment(begins, observed.now)}"
    return Wait(WaitFor.SLICE, words, until, begins)


def start(cluster: str, observed: Observed, facts: Facts, budgets: Budgets, intent: Intent) -> Step:
    """Have a stopped slice started: not in a hot loop, not after it was refused thrice, and not for ever."""
    trouble = observed.trouble
    if trouble is not None and trouble.step == "StartSlice" and (trouble.final or trouble.times >= CREATE_TRIES):
        return GiveUp(trouble.code, trouble.status, trouble.what, trouble.why, trouble.next_step)
    until = max(intent.since, observed.well_at or 0.0) + budgets.boot_deadline
    if observed.now >= until:
        return wait_slice(cluster, observed, until)
    request = facts.requests[intent.candidate.provider].start_request(intent.name, intent.candidate)
    return just_asked(observed, intent) or StartSlice(intent.name, request)


def just_asked(observed: Observed, intent: Intent) -> Wait | None:
    """A pause when a request went out a moment ago: the provider may not show its effect yet."""
    until = intent.touched + ASK_AGAIN_AFTER
    if observed.now >= until:
        return None
    return Wait(WaitFor.PAUSE, "a request was sent a moment ago; its effect is waited for", until)


def _spoilt(observed: Observed) -> EndCause:
    """A slice that worked, and works no more, is a loss; one that never worked is only the wrong candidate."""
    return EndCause.HOST_DIED if observed.started else EndCause.BROKEN


def _not_for_a_guest(desired: Run, observed: Observed, intent: Intent) -> Action:
    """A command that only uses the cluster neither finishes a create nor ends a slice: that is its owner's business."""
    state = observed.slice_state if intent.state is IntentState.ACCEPTED else intent.state
    return Conclude(
        Exit.HOST_LOST,
        "host-lost",
        f"cluster '{desired.cluster}' has no hosts to use: it is {state}",
        observed.slice_reason,
        f"orch resume {desired.cluster}   or: orch down {desired.cluster}",
    )


def _until_gone(observed: Observed, facts: Facts, budgets: Budgets, intent: Intent) -> Step:
    if observed.slice_state is SliceState.ABSENT:
        return ForgetSlice(intent.name, intent.cause or EndCause.ASKED, intent.why)
    trouble = observed.trouble
    # Not from `touched`: the request is sent again and again, and that must not move the deadline.
    until = max(intent.since, observed.well_at or 0.0) + budgets.end_deadline
    if trouble is not None and trouble.times >= CREATE_TRIES and (trouble.final or observed.now >= until):
        return GiveUp(trouble.code, trouble.status, trouble.what, trouble.why, trouble.next_step)
    quiet = observed.now - max(intent.since, intent.touched)
    # What shows no effect is asked again; what is said to be ending may be stuck there, and is asked again later.
    patience = budgets.resend_after * (STUCK_FACTOR if observed.slice_state is SliceState.ENDING else 1)
    if observed.slice_state is not SliceState.UNCLEAR and quiet >= patience and observed.now < until:
        return _end(facts, intent, intent.cause or EndCause.ASKED, intent.why)
    return wait_slice(intent.name.removesuffix(f"-{intent.generation}"), observed, until)


def _create_again(desired: Run, observed: Observed, facts: Facts, intent: Intent) -> Action:
    trouble = observed.trouble
    if trouble is not None and trouble.times >= CREATE_TRIES:
        # Whether the create took effect is not known: ending covers both cases.
        return _end(facts, intent, EndCause.BROKEN, f"{trouble.what}: {trouble.why}")
    return _create(desired, facts, intent.candidate, intent.generation)


def _create_next(desired: Run, observed: Observed, facts: Facts) -> Action | Wait:
    if not desired.create:
        return Conclude(
            Exit.NOT_FOUND,
            "not-found",
            f"cluster '{desired.cluster}' has no machines",
            next_step=f"orch launch -c {desired.cluster} …   or: orch resume {desired.cluster}",
        )
    if observed.trouble is not None and observed.trouble.final:
        trouble = observed.trouble
        return Conclude(trouble.status, trouble.code, trouble.what, trouble.why, trouble.next_step)
    places = recovery.in_order(desired, observed)
    if not places:
        return Conclude(
            Exit.TIMEOUT,
            LIMIT,
            f"'{desired.cluster}': the time of all machines that its task names is over",
            next_step="name other machines in the task, or another block, then launch again",
        )
    until = recovery.pause_until(desired, observed)
    if observed.now < until:
        return Wait(WaitFor.PAUSE, f"a short pause before attempt {observed.attempt}", until)
    refused = recovery.refusals(observed)
    for candidate in places:
        if candidate not in refused:
            return _create(desired, facts, candidate, _next_generation(observed))
    return _ask_again(desired, observed, facts, refused)


def _ask_again(desired: Run, observed: Observed, facts: Facts, refused: dict[Candidate, list[Intent]]) -> Action | Wait:
    """Everybody said no: ask the one whose pause ends first again, as long as the user wants to wait."""
    refused = {candidate: refused[candidate] for candidate in recovery.in_order(desired, observed)}
    again = sorted((recovery.retry_at(desired, times), place) for place, times in enumerate(refused.values()))
    began = min(times[0].since for times in refused.values())
    budgets = desired.budgets
    patience = budgets.capacity_wait if observed.attempt > 1 or observed.ended else budgets.capacity_wait_first
    if observed.now >= began + patience:
        return Conclude(
            Exit.CAPACITY,
            "capacity",
            f"no machines for '{desired.cluster}' in any of {len(refused)} place(s)",
            "; ".join(f"{candidate.where}: {times[-1].why}" for candidate, times in refused.items()),
            "try another zone or market, or the same command again later",
        )
    when, place = again[0]
    candidate, times = list(refused.items())[place]
    if observed.now < when:
        words = f"no machines in {len(refused)} place(s) ({times[-1].why}); {candidate.where} is asked again"
        return Wait(WaitFor.PAUSE, words, min(when, began + patience))
    return _create(desired, facts, candidate, _next_generation(observed))


def _next_generation(observed: Observed) -> int:
    return max((intent.generation for intent in observed.intents), default=0) + 1


def _charge_loss(desired: Run, observed: Observed) -> Action | None:
    """Book the loss of the last slice, once, and stop when the budget is spent."""
    lost = [intent for intent in observed.intents if intent.cause in SLICE_LOSSES]
    if not lost:
        return None
    last = lost[-1]
    if any(ended.generation == last.generation for ended in observed.ended):
        return None
    if last.generation <= observed.opened_at and not observed.started:
        return None  # it was lost before this job had anything to do with it
    if (verdict := observed.condemned) is not None:  # it was lost while its program was being ended for something else
        status, rank, step = verdict_status(verdict.cause), verdict.rank, verdict.step
        return next_attempt_or_end(
            desired, observed, verdict.cause, verdict.why, last.generation, status, rank=rank, step=step
        )
    return next_attempt_or_end(desired, observed, last.cause or EndCause.PREEMPTED, last.why, last.generation)


def verdict_status(cause: EndCause) -> int:
    """The exit status when an attempt that was ended for this cause was the last one."""
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
    last_words: str = "",
    *,
    exit_code: int | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> Action:
    """Open the next attempt when the budget for this cause allows it; else record the end."""
    budget, used = recovery.budget_of(cause, desired.budgets), recovery.used(cause, observed)
    by_loss = generation is not None and observed.condemned is None
    room = recovery.room_for(cause, observed, desired.budgets, by_loss=by_loss)
    if room and exit_code not in desired.budgets.fail_on:
        return NextAttempt(observed.attempt + 1, cause, why, generation, exit_code, rank, step)
    what = f"the hosts of '{desired.cluster}' were lost" if by_loss else why
    reasons = [why] if by_loss else [last_words] if last_words else []
    if exit_code in desired.budgets.fail_on:
        reasons.append(f"exit {exit_code} is one of fail_on_exit_codes: it is never run again")
    elif budget:
        reasons.append(f"{used} of {budget} restarts for this cause were used")
    logs = f"orch logs {desired.cluster} {desired.job_id}   shows its output"
    back = f"orch resume {desired.cluster}   goes on from the newest checkpoint"
    return Conclude(
        status,
        "host-lost" if cause in LOSSES and status == Exit.HOST_LOST else "program-failed",
        what,
        "; ".join(reasons),
        back if desired.checkpoint_uri is not None else logs,
    )


def _create(desired: Run, facts: Facts, candidate: Candidate, generation: int) -> CreateSlice:
    name = f"{desired.cluster}-{generation}"
    spec = SliceSpec(
        cluster=desired.cluster,
        name=name,
        token=Text.of(desired.uid, f"-{generation}"),
        candidate=candidate,
        labels=(
            ("orch-installation", desired.installation),
            ("orch-cluster", Text.of(desired.cluster)),
            ("orch-intent", Text.of(desired.uid, f"-{generation}")),
            *((key, Text.of(value)) for key, value in desired.labels),
        ),
    )
    return CreateSlice(spec, generation, facts.requests[candidate.provider].create_request(spec))


def _end(facts: Facts, intent: Intent, cause: EndCause, why: str) -> EndSlice:
    request = facts.requests[intent.candidate.provider].end_request(intent.name, intent.candidate)
    return EndSlice(intent.name, cause, why, request)
