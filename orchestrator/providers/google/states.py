"""Google's states as ours, and the reasons in words. Pure.

States: TPU API v2, Node.State, Node.Health and QueuedResourceState.State (reference, 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.slices import SliceState, SliceView

NODE = {
    "CREATING": SliceState.CREATING,
    "READY": SliceState.READY,
    "RESTARTING": SliceState.STARTING,
    "REIMAGING": SliceState.STARTING,
    "REPAIRING": SliceState.STARTING,
    "STARTING": SliceState.STARTING,
    "UNHIDING": SliceState.STARTING,
    "DELETING": SliceState.ENDING,
    "STOPPED": SliceState.STOPPED,
    "STOPPING": SliceState.STOPPING,
    "PREEMPTED": SliceState.PREEMPTED,
    "TERMINATED": SliceState.PREEMPTED,  # by maintenance, or at the end of a preemptible node's time
    "HIDING": SliceState.UNCLEAR,
    "HIDDEN": SliceState.UNCLEAR,
    "UNKNOWN": SliceState.FAILED,  # after a repair that failed
    "STATE_UNSPECIFIED": SliceState.UNCLEAR,
}
QUEUED = {
    "CREATING": SliceState.CREATING,
    "ACCEPTED": SliceState.CREATING,
    "WAITING_FOR_RESOURCES": SliceState.CREATING,
    "PROVISIONING": SliceState.CREATING,
    "ACTIVE": SliceState.READY,  # if its nodes are
    "FAILED": SliceState.FAILED,
    "DELETING": SliceState.ENDING,
    "SUSPENDING": SliceState.ENDING,  # cannot be deleted now; becomes SUSPENDED, which can
    "SUSPENDED": SliceState.PREEMPTED,
    "STATE_UNSPECIFIED": SliceState.UNCLEAR,
}
_WAITING = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"})
EXPIRY_GRACE = 300.0  # seconds that Google has to say itself that a request has expired
_WORST_FIRST = (
    SliceState.PREEMPTED,
    SliceState.FAILED,
    SliceState.UNCLEAR,
    SliceState.ENDING,
    SliceState.STOPPING,
    SliceState.STOPPED,
    SliceState.STARTING,
    SliceState.CREATING,
    SliceState.READY,
)


def node_view(node: Any) -> SliceView:
    """One node, without its hosts."""
    state = NODE.get(node.state.name, SliceState.UNCLEAR)
    said = node.state.name.lower()
    words = _words("" if said == str(state) else said, node.health_description)
    if state is SliceState.READY:
        if node.health.name == "UNHEALTHY_MAINTENANCE":
            return SliceView(state=SliceState.STARTING, reason=_words("under maintenance", node.health_description))
        words = "" if node.health.name in ("HEALTHY", "HEALTH_UNSPECIFIED") else f"health: {node.health.name.lower()}"
    return SliceView(state=state, reason=words)


def queued_view(queued: Any, now: float, *, valid_seconds: int = 0, run_seconds: int = 0) -> SliceView:
    """The request alone. Its reason says the state and how long it waits; `until` is the one deadline.

    valid_seconds: how long it may wait, if it does not say so itself. run_seconds: how long its machines may run.
    A request that has expired stays in the queue ("Manage queued resources", 2026): it has failed all the same.
    """
    name = queued.state.state.name
    state = QUEUED.get(name, SliceState.UNCLEAR)
    words = name.lower().replace("_", " ")
    created = queued.create_time.timestamp() if queued.create_time else now
    age = max(0.0, now - created)
    if name == "FAILED":
        words = _words("failed", queued.state.failed_data.error.message)
    if name in ("SUSPENDING", "SUSPENDED"):
        over = 0 < run_seconds <= age
        why = f"its {_span(run_seconds)} are over" if over else "its machines were taken back"
        words += f" by {queued.state.state_initiator.name.lower()}: {why}"
    if state not in (SliceState.CREATING, SliceState.READY):
        return SliceView(state=state, reason=words)
    until = _until(queued, created, valid_seconds) if queued.create_time else None
    if name in _WAITING and until is not None and now > until + EXPIRY_GRACE:
        return SliceView(
            state=SliceState.FAILED, reason=f"expired: no machines became free within {_span(until - created)}"
        )
    if state is SliceState.CREATING and queued.create_time:
        words += f" for {_span(age)}"
    return SliceView(state=state, reason=words, until=until)


def _until(queued: Any, created: float, valid_seconds: int) -> float | None:
    """When it expires, in seconds since the epoch. Google may show the end of a duration as a time."""
    policy = queued.queueing_policy
    if policy.valid_until_duration:
        return created + float(policy.valid_until_duration.total_seconds())
    if policy.valid_until_time:
        return float(policy.valid_until_time.timestamp())
    if "valid_interval" in policy:
        return float(policy.valid_interval.end_time.seconds)  # google.type.Interval has no wrapper
    return created + valid_seconds if valid_seconds else None


def together(views: Sequence[SliceView], what: str = "slices") -> SliceView:
    """The worst of several nodes, and how many of them are so. what: their name in messages."""
    worst = min(views, key=lambda view: _WORST_FIRST.index(view.state))
    if len(views) == 1:
        return worst
    same = sum(view.state is worst.state for view in views)
    reason = worst.reason if worst.state is SliceState.READY else f"{same} of {len(views)} {what}: {worst.reason}"
    return SliceView(state=worst.state, reason=reason)


def _words(state: str, more: str) -> str:
    return ": ".join(part for part in (state, " ".join(more.split())[:200]) if part)


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
