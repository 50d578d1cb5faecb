"""Compute Engine's statuses as ours, and the reasons in words. Pure.

Statuses: "Compute Engine instance lifecycle" (docs.cloud.google.com/compute/docs/instances/instance-lifecycle) and
compute v1, discovery document of November 2026: Instance.status, ManagedInstance.currentAction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.providers.core.faults import Answer, Kind
from orchestrator.providers.core.record import Phase
from orchestrator.providers.google.compute.api import answer_of
from orchestrator.providers.google.compute.parts import Part
from orchestrator.providers.google.compute.record import Record
from orchestrator.providers.google.retries import explain
from orchestrator.slices import SliceState, SliceView

INSTANCE = {
    "PENDING": SliceState.CREATING,  # flex-start: waits for machines
    "PROVISIONING": SliceState.CREATING,
    "STAGING": SliceState.CREATING,
    "RUNNING": SliceState.READY,
    "REPAIRING": SliceState.STARTING,  # its host has failed; it comes back
    "PENDING_STOP": SliceState.STOPPING,
    "STOPPING": SliceState.STOPPING,
    "SUSPENDING": SliceState.STOPPING,
    "SUSPENDED": SliceState.STOPPED,
    "STOPPED": SliceState.STOPPED,
    "TERMINATED": SliceState.STOPPED,
    "DEPROVISIONING": SliceState.ENDING,
}
_GOING = frozenset({SliceState.STOPPING, SliceState.STOPPED, SliceState.ENDING})
_WAITS = frozenset({Kind.CAPACITY, Kind.UNAVAILABLE, Kind.THROTTLED, Kind.NO_ANSWER})


def instance_view(record: Record, instance: Mapping[str, Any]) -> SliceView:
    """A slice, or a part of one, that is one instance; without its host."""
    status = str(instance.get("status", ""))
    state = INSTANCE.get(status, SliceState.UNCLEAR)
    words = _words(status, str(instance.get("statusMessage", "")))
    if state in _GOING and record.phase is Phase.ENDING:
        return SliceView(state=SliceState.ENDING, reason=words)
    if state in _GOING and record.market:  # nobody stops what is deleted when it stops
        return SliceView(state=_lost(record), reason=words)
    if status == "PENDING":
        return SliceView(state=state, reason=f"{words}: waits for machines", until=_until(record))
    return SliceView(state=state, reason=words)


def group_view(
    record: Record,
    part: Part,
    group: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
    errors: Sequence[Mapping[str, Any]],
) -> SliceView:
    """A part that is a group. members: as listManagedInstances shows them; errors: of the group, the newest first."""
    actions: Mapping[str, Any] = group.get("currentActions") or {}
    if actions.get("deleting") or any(one.get("currentAction") == "DELETING" for one in members):
        return SliceView(state=SliceState.ENDING, reason=f"{part.name} is being deleted")
    statuses = [str(one.get("instanceStatus", "")) for one in members]
    running = sum(status == "RUNNING" for status in statuses)
    if running == part.hosts:
        return SliceView(state=SliceState.READY, reason="RUNNING")
    if not members and record.phase is Phase.ENDING:
        return SliceView(state=SliceState.ENDING, reason=f"{part.name} has no instances any more")
    if record.seen:
        gone = part.hosts - running
        odd = ", ".join(sorted({status for status in statuses if status not in ("", "RUNNING")})) or "gone"
        return SliceView(state=_lost(record), reason=f"{gone} of {part.hosts} instances of {part.name}: {odd}")
    return _being_made(record, part, members, errors, running)


def _being_made(
    record: Record,
    part: Part,
    members: Sequence[Mapping[str, Any]],
    errors: Sequence[Mapping[str, Any]],
    running: int,
) -> SliceView:
    """A group tries for ever: what stands in its way ends it, unless it was asked to wait for machines."""
    found = next((error for one in members for error in _attempt(one)), None) or next(iter(errors), None)
    words = f"{running} of {part.hosts} instances of {part.name} are RUNNING"
    if found is None:
        stopped = [str(one.get("name")) for one in members if one.get("instanceStatus") in ("TERMINATED", "STOPPED")]
        if stopped:
            return SliceView(state=SliceState.FAILED, reason=f"{stopped[0]} has ended before all were there")
        return SliceView(state=SliceState.CREATING, reason=words)
    answer = answer_of(found)
    if record.market == "flex" and answer.kind in _WAITS:
        return SliceView(state=SliceState.CREATING, reason=f"{words}; waits for machines", until=_until(record))
    return refused_view(record, answer)


def refused_view(record: Record, answer: Answer) -> SliceView:
    """Return the view of a slice whose create was refused after it had been accepted."""
    refused = explain("create", record.name, answer, record.project)
    return SliceView(state=SliceState.FAILED, reason=answer.reason, refused=refused)


def is_being_deleted(machine: Mapping[str, Any]) -> bool:
    """Return whether the deletion of an instance or a group is under way."""
    actions: Mapping[str, Any] = machine.get("currentActions") or {}
    return bool(actions.get("deleting")) or machine.get("status") == "DEPROVISIONING"


def _attempt(member: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    attempt: Mapping[str, Any] = member.get("lastAttempt") or {}
    errors: Mapping[str, Any] = attempt.get("errors") or {}
    return errors.get("errors") or []


def _lost(record: Record) -> SliceState:
    return SliceState.PREEMPTED if record.market == "spot" else SliceState.FAILED


def _until(record: Record) -> float | None:
    return record.asked + record.wait_seconds if record.wait_seconds else None


def _words(status: str, more: str) -> str:
    return ": ".join(part for part in (status, " ".join(more.split())[:200]) if part)
