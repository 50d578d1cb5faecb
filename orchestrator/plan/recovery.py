"""The arithmetic of recovery: which budget, how long a pause, where to look next. Pure; chance comes from a hash."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from orchestrator.plan.causes import LOSSES, SLICE_LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Run, Strategy
from orchestrator.plan.observed import Ended, Intent, Observed
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Spot

SHORT_ATTEMPT = 600.0  # seconds; an attempt that lasted longer did useful work, and the pauses begin anew
_AFRESH = SLICE_LOSSES | {EndCause.EXPIRED}  # after these every place is asked again
JITTER = 0.25  # of a pause, either way, so that many clusters do not come back at once


def budget_of(cause: EndCause, budgets: Budgets) -> int:
    """How often a run may be started again for this cause."""
    return budgets.preemptions if cause in LOSSES else budgets.failures if cause is EndCause.PROGRAM else 0


def used(cause: EndCause, observed: Observed) -> int:
    """Restarts that were spent on the same budget before the present attempt. One preemption is one, see _echo."""
    same = LOSSES if cause in LOSSES else {cause}
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    spent = sum(ended.cause in same for ended in past)
    return spent - sum(_echo(before, after) for before, after in pairwise(past) if after.cause in same)


def room_for(cause: EndCause, observed: Observed, budgets: Budgets, *, by_loss: bool) -> bool:
    """Whether one more restart may be spent. by_loss: a slice is lost now, which may be paid already, see _echo."""
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    if by_loss and past and _echo(past[-1], Ended(observed.attempt, cause, "", 0, observed.now)):
        return True
    return used(cause, observed) < budget_of(cause, budgets)


def pause_until(desired: Run, observed: Observed) -> float:
    """Before when the present attempt should not begin: 0.0 for a first attempt and for a first loss."""
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    streak = _short_ones(past)
    if streak < 2:
        return 0.0
    return past[-1].at + _pause(desired.budgets, streak - 1, f"{_seed(desired)}-{observed.attempt}")


def retry_at(desired: Run, refusals: list[Intent]) -> float:
    """When a candidate that was refused so often may be asked again."""
    last = refusals[-1]
    return last.since + _pause(desired.budgets, len(refusals), f"{_seed(desired)}-{last.generation}")


def refusals(observed: Observed) -> dict[Candidate, list[Intent]]:
    """Candidates that said no since the job was opened, or since a slice was last lost or over, with each time."""
    found: dict[Candidate, list[Intent]] = {}
    for intent in observed.intents:
        if intent.generation <= observed.opened_at:
            continue
        if intent.cause in (EndCause.REFUSED, EndCause.BROKEN):
            found.setdefault(intent.candidate, []).append(intent)
        elif intent.cause in _AFRESH:
            found.clear()
    return found


def in_order(desired: Run, observed: Observed) -> tuple[Candidate, ...]:
    """The candidates as they should be tried now: as the user ordered them, or, after a loss, by the strategy.

    What stands there on demand for want of the same thing on spot stays behind all the others: it costs more. What the
    provider has taken back at the end of its time is not there any more.
    """
    past = [intent.candidate for intent in observed.intents if intent.cause is EndCause.EXPIRED]
    left = tuple(one for one in desired.candidates if not any(is_same(one, over) for over in past))
    lost = [intent for intent in observed.intents if intent.cause in SLICE_LOSSES]
    if not lost:
        return left
    taken = lost[-1].candidate
    near = desired.budgets.strategy is Strategy.FAILOVER
    spot = {_place(candidate) for candidate in desired.candidates if isinstance(candidate.market, Spot)}

    def key(candidate: Candidate) -> tuple[bool, int]:
        fallback = isinstance(candidate.market, OnDemand) and _place(candidate) in spot
        return fallback, _distance(taken, candidate, near)

    ranked = sorted(enumerate(left), key=lambda pair: (*key(pair[1]), pair[0]))
    return tuple(candidate for _, candidate in ranked)


def is_same(one: Candidate, other: Candidate) -> bool:
    """Whether both mean the same machines: one capacity block can be written in several ways."""
    return one == other or (isinstance(one.market, CapacityBlock) and one.market == other.market)


def hung_again(observed: Observed, step: int | None) -> bool:
    """The attempt before also hung, and this one got no further: the program's fault, not the machine's."""
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    if not past or past[-1].cause is not EndCause.HUNG:
        return False
    before = past[-1].step
    return before is not None and (step is None or step <= before)


def _echo(before: Ended, after: Ended) -> bool:
    """The same preemption seen twice: the program saved and went, or vanished, and soon its machines went as well."""
    gone_first = before.generation is None and before.cause in SLICE_LOSSES
    return gone_first and after.generation is not None and after.cause in SLICE_LOSSES and _brief(before, after)


def _brief(earlier: Ended, later: Ended) -> bool:
    """Whether the later attempt was over soon after the earlier one."""
    return later.at - earlier.at < SHORT_ATTEMPT


def _short_ones(past: list[Ended]) -> int:
    """How many attempts in a row, up to the last one, lasted only a short time."""
    count = min(len(past), 1)  # when the first one began is not known here
    for earlier, later in pairwise(past):
        count = count + 1 if _brief(earlier, later) else 0
    return count


def _pause(budgets: Budgets, times: int, seed: str) -> float:
    longest = min(budgets.backoff_cap, budgets.backoff_base * 2.0 ** min(times - 1, 30))
    chance = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**32  # 0 <= chance < 1
    return longest * (1 - JITTER + 2 * JITTER * chance)


def _seed(desired: Run) -> str:
    """Different for every run, the same at every look."""
    return desired.run_id.preview()


def _place(candidate: Candidate) -> tuple[str, str, str, str]:
    return candidate.provider, candidate.accelerator, candidate.region, candidate.zone


def _distance(taken: Candidate, other: Candidate, near: bool) -> int:
    """0 is tried first. near: the place of the loss first; else last."""
    if (other.provider, other.region) != (taken.provider, taken.region):
        step = 2
    elif other.zone != taken.zone:
        step = 1
    else:
        step = 0
    return step if near else -step
