"""The choice of machines is made again before a lost slice is replaced, and recorded as an event."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.loop.session import Session
from orchestrator.errors import OrchError
from orchestrator.plan.automatic import choose_again
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Observed


def renew_choice(session: Session, observed: Observed) -> Observed:
    """Choose the candidates of a run again where it has no slice, and had one before. Return what `decide` gets."""
    desired, job = session.desired, session.job
    if not isinstance(desired, Run) or desired.automatic is None or job is None or observed.outcome is not None:
        return observed
    if observed.current is not None or not (observed.ended or job.kind == "resume"):
        return observed
    memory = session.memory
    if memory.step_of != observed.attempt:  # nothing trains without a slice
        try:
            memory.saved_step = session.hold.find_saved_step() if session.hold is not None else None
        except OrchError:
            return observed  # how much is left is unknown: the present choice stays, and the next round asks again
        memory.step_of = observed.attempt
    found = choose_again(desired, observed, launched=job.created, step=memory.saved_step)
    session.desired = found.desired
    first = found.desired.candidates[0] if found.spent is None else None
    if memory.chosen != (observed.attempt, first):
        memory.chosen = observed.attempt, first
        said = f"attempt {observed.attempt}: {found.reason}"
        session.store.event(session.cluster.qualified_name, "choice", said)
        session.narrator.note(said)
    if found.spent is None:
        return observed
    return replace(observed, over_budget=tuple((one, found.spent) for one in desired.candidates))
