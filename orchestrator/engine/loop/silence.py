"""Observe for how long no process of this store had looked at machines that are absent now.

A computer that slept, or was off, cannot know why they are absent. Another installation may have taken them over and
ended them, and its labels are deleted with the machines.
"""

from __future__ import annotations

from orchestrator.engine.loop.session import Session
from orchestrator.plan.observed import Intent
from orchestrator.slices import SliceState, SliceView
from orchestrator.store.records import JobRecord

SILENCE_SECONDS = 600.0  # a program that runs is looked at every 10 s; copying files and setup may take minutes


def note_look(session: Session, intent: Intent, view: SliceView) -> None:
    """Note what the provider reports, and since when no process of this store had looked before that.

    Nothing is recorded while a silence is not explained: an engine that continues after this one is killed has to know
    of it, and `last_seen` is what it knows.
    """
    memory, now = session.memory, session.now()
    last = memory.looked_at
    if last < now - SILENCE_SECONDS:
        record = session.store.cluster(session.cluster.name)
        last = max(last, intent.since, record.last_seen if record is not None else 0.0)
    if last < now - SILENCE_SECONDS:
        memory.silent_since = last
    if view.state not in (SliceState.ABSENT, SliceState.UNCLEAR):
        memory.silent_since = 0.0
    memory.looked_at = now
    _note_stop(session, view.state)
    if not memory.silent_since:
        session.store.note_state(session.cluster, view.state.value)


def _note_stop(session: Session, state: SliceState) -> None:
    """Record when the provider begins to report the machines as stopped, and when it no longer does."""
    stopped = state is SliceState.STOPPED
    if session.memory.stopped is stopped or state in (SliceState.ABSENT, SliceState.UNCLEAR):
        return
    session.store.record_observed_stop(session.cluster, stopped=stopped)
    session.memory.stopped = stopped


def find_unwatched_since(session: Session, job: JobRecord | None) -> float | None:
    """Return Observed.unwatched_since.

    The epoch of a run in a bucket shows whether another installation drives it. A job that was opened after the silence
    asks for new machines.
    """
    since = session.memory.silent_since
    return since if since and job is not None and not job.bucket and job.created < since else None
