"""Decide about a run that moves to better machines: it saves, its slice is ended, and the next one is requested.

It counts against no restart budget. The verdict is recorded first, so after a crash the move is finished. The next
slice is requested as after a loss: where the better machines are refused, the present ones are among the candidates.
"""

from __future__ import annotations

from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import ForgetSlice, NextAttempt
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_expiry import save_and_stop
from orchestrator.plan.decide_slice import end_slice
from orchestrator.plan.desired import Run
from orchestrator.plan.evidence import find_furthest_step
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.plan.steps import Step
from orchestrator.slices import SliceState


def decide_growth_step(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    """Return the next step of a move to better machines; None where the run does not move."""
    intent, verdict = observed.current, observed.pending_end
    if intent is not None and (why := _find_left_behind(observed, intent)) is not None:
        if observed.slice_state is SliceState.ABSENT:
            return ForgetSlice(intent.name, EndCause.GROWN, why)
        return end_slice(facts, intent, EndCause.GROWN, why)
    if verdict is not None and verdict.cause is EndCause.GROWN:
        return save_and_stop(desired, observed, EndCause.GROWN, verdict.why) or NextAttempt(
            attempt=observed.attempt + 1,
            cause=EndCause.GROWN,
            why=verdict.why,
            generation=observed.intents[-1].generation,  # so that its end is never charged as a loss
            step=verdict.step if verdict.step is not None else find_furthest_step(observed.hosts),
        )
    if verdict is None and observed.growth and _is_at_work(observed, intent):
        return save_and_stop(desired, observed, EndCause.GROWN, observed.growth)
    return None


def _find_left_behind(observed: Observed, intent: Intent) -> str | None:
    """Return why the run moves away from a slice that exists still; None for every other."""
    if intent.state is not IntentState.ACCEPTED:
        return None
    past = [ended for ended in observed.ended if ended.attempt != observed.attempt]
    moved = past[-1] if past and past[-1].cause is EndCause.GROWN else None
    return moved.why if moved is not None and moved.generation == intent.generation else None


def _is_at_work(observed: Observed, intent: Intent | None) -> bool:
    ready = intent is not None and intent.state is IntentState.ACCEPTED and observed.slice_state is SliceState.READY
    return ready and all(host.contact is Contact.OK and host.job is JobPhase.RUNNING for host in observed.hosts)
