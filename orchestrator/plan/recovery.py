"""Compute recovery: which budget, how long a pause, which candidate next. Pure; the jitter comes from a hash."""

from __future__ import annotations

from itertools import pairwise

from orchestrator.exits import Exit
from orchestrator.plan.causes import LOSSES, REFUSALS, SLICE_LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Run, Strategy
from orchestrator.plan.observed import EndedAttempt, Intent, Observed
from orchestrator.retries import Backoff, chance_of
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Spot

SHORT_ATTEMPT = 600.0  # seconds; a longer attempt did useful work and resets the backoff
_RESETS = SLICE_LOSSES | {EndCause.EXPIRED, EndCause.GROWN}  # after these every candidate is tried again
JITTER = 0.25  # of a pause, either way, so that many clusters do not retry at the same time


def restart_budget(cause: EndCause, budgets: Budgets) -> int:
    """Return how often a run may be restarted for this cause."""
    return budgets.preemptions if cause in LOSSES else budgets.failures if cause is EndCause.PROGRAM else 0


def count_restarts(cause: EndCause, observed: Observed, budgets: Budgets | None = None) -> int:
    """Count the restarts charged to the same budget before the current attempt; see _is_same_loss.

    Those charged to the budget of failing buckets are left out where `budgets` has one.
    """
    same = LOSSES if cause in LOSSES else {cause}
    past = [
        ended
        for ended in observed.ended
        if ended.attempt != observed.attempt
        and not (budgets is not None and is_storage_failure(ended.cause, ended.exit_code, budgets))
    ]
    spent = sum(ended.cause in same for ended in past)
    return spent - sum(_is_same_loss(before, after) for before, after in pairwise(past) if after.cause in same)


def is_storage_failure(cause: EndCause, exit_code: int | None, budgets: Budgets) -> bool:
    """Return whether an attempt ended because its bucket failed, which has a separate budget."""
    return budgets.storage > 0 and cause is EndCause.PROGRAM and exit_code == Exit.STORAGE


def count_storage_restarts(observed: Observed, budgets: Budgets) -> int:
    """Count the ends by a failing bucket before the current attempt that got no further than an earlier one."""
    count, furthest = 0, -1
    for ended in observed.ended:
        if ended.attempt != observed.attempt and is_storage_failure(ended.cause, ended.exit_code, budgets):
            step = -1 if ended.step is None else ended.step
            count = 1 if step > furthest else count + 1
            furthest = max(furthest, step)
    return count


def may_restart(
    cause: EndCause, observed: Observed, budgets: Budgets, *, by_loss: bool, exit_code: int | None = None
) -> bool:
    """Return whether the budget allows one more restart.

    Args:
        cause: Cause of the end.
        observed: The past attempts.
        budgets: The limits.
        by_loss: A slice is lost now; its loss may be charged already, see _is_same_loss.
        exit_code: Of the program, where one ended.
    """
    if is_storage_failure(cause, exit_code, budgets) and count_storage_restarts(observed, budgets) < budgets.storage:
        return True
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    if (
        by_loss
        and past
        and _is_same_loss(
            past[-1], EndedAttempt(attempt=observed.attempt, cause=cause, why="", generation=0, at=observed.now)
        )
    ):
        return True
    return count_restarts(cause, observed, budgets) < restart_budget(cause, budgets)


def pause_until(desired: Run, observed: Observed) -> float:
    """Return the earliest start of the current attempt; 0.0 for a first attempt and after a first loss."""
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    streak = _short_ones(past)
    if streak < 2:
        return 0.0
    return past[-1].at + _pause(desired.budgets, streak - 1, f"{_seed(desired)}-{observed.attempt}")


def retry_at(desired: Run, refusals: list[Intent]) -> float:
    """Return when a refused candidate may be requested again."""
    last = refusals[-1]
    return last.since + _pause(desired.budgets, len(refusals), f"{_seed(desired)}-{last.generation}")


def list_refusals(observed: Observed) -> dict[Candidate, list[Intent]]:
    """Return the candidates refused since the job was opened or a slice was last lost, with each refusal."""
    found: dict[Candidate, list[Intent]] = {}
    for intent in observed.intents:
        if intent.generation <= observed.generation_at_open:
            continue
        if intent.cause in REFUSALS:
            found.setdefault(intent.candidate, []).append(intent)
        elif intent.cause in _RESETS:
            found.clear()
    return found


def order_candidates(desired: Run, observed: Observed) -> tuple[Candidate, ...]:
    """Return the candidates in the order in which they are tried: the user's, or, after a loss, that of the strategy.

    An on-demand fallback for a spot candidate stays behind all others, because it costs more. Machines whose announced
    time is over, or that a budget does not allow, are left out.
    """
    past = [intent.candidate for intent in observed.intents if intent.cause is EndCause.EXPIRED]
    past += [candidate for candidate, _ in observed.over_budget]
    left = tuple(one for one in desired.candidates if not any(is_same_machine(one, over) for over in past))
    lost = [intent for intent in observed.intents if intent.cause in SLICE_LOSSES]
    if not lost or desired.automatic is not None:  # the choice that was made again has its own order
        return left
    taken = lost[-1].candidate
    near = desired.budgets.strategy is Strategy.FAILOVER
    spot = {_place(candidate) for candidate in desired.candidates if isinstance(candidate.market, Spot)}

    def key(candidate: Candidate) -> tuple[bool, int, int]:
        fallback = isinstance(candidate.market, OnDemand) and _place(candidate) in spot
        variant = desired.find_variant(candidate)  # of several sizes the first one that is there
        size = desired.variants.index(variant) if variant is not None else 0
        return fallback, size, _distance(taken, candidate, near)

    ranked = sorted(enumerate(left), key=lambda pair: (*key(pair[1]), pair[0]))
    return tuple(candidate for _, candidate in ranked)


def is_same_machine(one: Candidate, other: Candidate) -> bool:
    """Return whether both name the same machines: one capacity block can be written in several ways."""
    return one == other or (isinstance(one.market, CapacityBlock) and one.market == other.market)


def hung_without_progress(observed: Observed, step: int | None) -> bool:
    """Return whether the previous attempt hung too and this one got no further: then the program is to blame."""
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    if not past or past[-1].cause is not EndCause.HUNG:
        return False
    before = past[-1].step
    return before is not None and (step is None or step <= before)


def _is_same_loss(before: EndedAttempt, after: EndedAttempt) -> bool:
    """Return whether both ends show one preemption: first the program ended, soon after its machines were lost."""
    program_first = before.generation is None and before.cause in SLICE_LOSSES
    return program_first and after.generation is not None and after.cause in SLICE_LOSSES and _brief(before, after)


def _brief(earlier: EndedAttempt, later: EndedAttempt) -> bool:
    """Return whether the later attempt ended soon after the earlier one."""
    return later.at - earlier.at < SHORT_ATTEMPT


def _short_ones(past: list[EndedAttempt]) -> int:
    """Count the consecutive short attempts up to the last one."""
    count = min(len(past), 1)  # the start of the first one is not known here
    for earlier, later in pairwise(past):
        count = count + 1 if _brief(earlier, later) else 0
    return count


def _pause(budgets: Budgets, times: int, seed: str) -> float:
    """Return an exponential backoff with deterministic jitter (seconds)."""
    backoff = Backoff(first=budgets.backoff_base, longest=budgets.backoff_cap, jitter=(1 - JITTER, 1 + JITTER))
    return backoff.pause(times, chance_of(seed))


def _seed(desired: Run) -> str:
    """Return a seed that differs between runs and stays the same within one."""
    return desired.run_id.preview()


def _place(candidate: Candidate) -> tuple[str, str, str, str]:
    return candidate.provider, candidate.accelerator, candidate.region, candidate.zone


def _distance(taken: Candidate, other: Candidate, near: bool) -> int:
    """Return the sort key of a place, lowest first. near: the place of the loss comes first, else last."""
    if (other.provider, other.region) != (taken.provider, taken.region):
        step = 2
    elif other.zone != taken.zone:
        step = 1
    else:
        step = 0
    return step if near else -step
