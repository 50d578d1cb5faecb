"""The words for an action, in one plain line."""

from __future__ import annotations

from orchestrator.formatting import format_duration, format_size
from orchestrator.messages import count_noun
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    Conclude,
    CreateSlice,
    EndAttempt,
    EndSlice,
    FetchMount,
    ForgetSlice,
    HostAction,
    NextAttempt,
    RunSetup,
    StartJob,
    StartSlice,
    StopJob,
    StopSlice,
    SyncTree,
)
from orchestrator.plan.causes import REFUSALS
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.refusals import Refusal


def is_record_change(action: Action) -> bool:
    """Return whether the action only changes our own records, which takes no time worth reporting."""
    return isinstance(action, ForgetSlice | NextAttempt | EndAttempt)


def describe_action(action: Action) -> str:
    """Return what the action does and to what; "" for actions that are reported elsewhere."""
    match action:
        case CreateSlice(spec=spec):
            machine = spec.candidate
            return (
                f"creating {spec.name}: {count_noun(machine.hosts, 'host')} of {machine.accelerator} on {machine.where}"
            )
        case EndSlice():
            return f"ending {action.name}: {Refusal.parse(action.why).why}"
        case ForgetSlice() if action.cause in REFUSALS:
            return f"{action.name} no longer exists"  # why was said when its end was requested
        case ForgetSlice():
            return f"{action.name} no longer exists: {action.why}"
        case StopSlice():
            return f"stopping {action.name}"
        case StartSlice():
            return f"starting {action.name}"
        case NextAttempt():
            return f"attempt {action.attempt} follows: {action.why}"
        case EndAttempt():
            return f"ending attempt {action.attempt} ({action.cause}): {action.why}"
        case Conclude():
            return ""
        case _:
            return _on_hosts(action)


def describe_success(action: Action, seconds: float) -> str:
    """Return the result of an action. What is requested of a provider is done when the provider reports it."""
    word = "requested" if isinstance(action, CreateSlice | EndSlice | StopSlice | StartSlice) else "done"
    return word if seconds < 0.05 else f"{word} in {format_duration(seconds)}"


def _on_hosts(action: HostAction) -> str:
    match action:
        case SyncTree():
            what = f"{count_noun(action.files, 'file')}, {format_size(action.total_bytes)}"
            return f"sync {action.label}: {what} to {count_noun(len(action.ranks), 'host')}"
        case FetchMount():
            return f"copying {action.source} to {action.destination} on {format_hosts(action.ranks)}"
        case RunSetup():
            return f"setup on {count_noun(len(action.ranks), 'host')}"
        case StartJob():
            again = f", attempt {action.attempt}" if action.attempt > 1 else ""
            return f"starting the program on {count_noun(len(action.ranks), 'host')}{again}"
        case StopJob():
            return f"stopping the program on {format_hosts(action.ranks)}: {action.why}"
        case ArmTimer():
            return f"setting the timer that ends {format_hosts(action.ranks)} when a limit is reached"
        case CollectStacks():
            return f"collecting stacks on {format_hosts(action.ranks)}: {action.why}"
