"""Compare from time to time whether a run that may move to better machines gains by it now."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.loop.session import Session
from orchestrator.engine.preparation.candidates import find_figures
from orchestrator.engine.state.own_capacity import read_own_capacity
from orchestrator.errors import OrchError
from orchestrator.hosts import JobPhase
from orchestrator.offers.capacity import SHOWN_WAIT
from orchestrator.plan.desired import Run
from orchestrator.plan.growth import explain_growth, may_grow
from orchestrator.plan.observed import Observed

CHECK_EVERY = 600.0  # seconds between two comparisons: each reads the events of weeks, and the run's bucket


def note_growth(session: Session, observed: Observed) -> Observed:
    """Return what `decide` gets: with the reason where the run moves to better machines now."""
    desired, job, memory = session.desired, session.job, session.memory
    if not isinstance(desired, Run) or not desired.grow or job is None or observed.outcome is not None:
        return observed
    if session.now() < memory.growth_checked + CHECK_EVERY or not may_grow(desired, observed, launched=job.created):
        return observed
    if session.hold is None or not any(host.job is JobPhase.RUNNING for host in observed.hosts):
        return observed
    memory.growth_checked = session.now()
    try:
        step = session.hold.find_saved_step()
        capacity = read_own_capacity(session.cluster.project, session.now(), alone=True)
    except OrchError:
        return observed  # what would be lost, or whether machines are likely, is unknown: the run stays
    figures = find_figures(desired.possible, capacity)
    chances = {one: found.chance_within(SHOWN_WAIT) for one, found in figures.items()}
    known = {one: chance for one, chance in chances.items() if chance is not None}
    why = explain_growth(desired, observed, known, launched=job.created, step=step)
    return replace(observed, growth=why)
