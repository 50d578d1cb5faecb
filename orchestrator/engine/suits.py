"""Whether the machines that a cluster has are those that a task asks for."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ConflictError
from orchestrator.plan.observed import IntentState, Observed
from orchestrator.slices import Candidate, SliceState

_TO_BE_REPLACED = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.ABSENT, SliceState.ENDING})


def mismatch(cluster: str, now: Observed, options: Sequence[Candidate]) -> ConflictError | None:
    """Why a program must not begin there: on other machines, or too few, it would run as if they were right.

    None where the cluster has what is asked for, or more, or where its machines are yet to be made.
    """
    has = _at_hand(now)
    if has is None or any(one.hosts <= has.hosts for one in _alike(has, options)):
        return None
    return ConflictError(
        f"'{cluster}' has other machines than this asks for",
        f"it has {_words(has)}; asked for: {_words(options[0])}",
        f"another cluster, -c NAME; or end this one first: orch down {cluster}",
    )


def surplus(cluster: str, now: Observed, options: Sequence[Candidate]) -> str:
    """A note where the cluster has more hosts than are asked for, else ""."""
    has = _at_hand(now)
    alike = _alike(has, options) if has is not None else []
    if has is None or not alike or any(one.hosts >= has.hosts for one in alike):
        return ""
    return f"'{cluster}' has {has.hosts} hosts; {alike[0].hosts} asked for: the program runs on all of them"


def _at_hand(now: Observed) -> Candidate | None:
    current = now.current
    if current is None or current.state is not IntentState.ACCEPTED or now.slice_state in _TO_BE_REPLACED:
        return None
    return current.candidate


def _alike(has: Candidate, options: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in options if one.accelerator == has.accelerator or has.adopted]


def _words(candidate: Candidate) -> str:
    return f"{candidate.hosts} host{'s' if candidate.hosts > 1 else ''} of {candidate.accelerator}"
