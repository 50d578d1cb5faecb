"""An action in one plain line."""

from __future__ import annotations

from orchestrator.cli.human import plural, size
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
from orchestrator.plan.ranks import host_words


def is_remark(action: Action) -> bool:
    """Whether it takes no time worth telling: a change of our own records."""
    return isinstance(action, ForgetSlice | NextAttempt | EndAttempt)


def action_words(action: Action) -> str:
    """What is done, to what; "" for what is told elsewhere."""
    match action:
        case CreateSlice(spec=spec):
            machine = spec.candidate
            if spec.candidate.adopted:
                return f"adopting {spec.candidate.adopted} as {spec.name}"
            return f"creating {spec.name}: {plural(machine.hosts, 'host')} of {machine.accelerator} on {machine.where}"
        case EndSlice():
            return f"ending {action.name}: {action.why}"
        case ForgetSlice():
            return f"{action.name} is gone: {action.why}"
        case StopSlice():
            return f"stopping {action.name}"
        case StartSlice():
            return f"starting {action.name}"
        case NextAttempt():
            return f"attempt {action.attempt} follows ({action.cause}): {action.why}"
        case EndAttempt():
            return f"attempt {action.attempt} is ended ({action.cause}): {action.why}"
        case Conclude():
            return ""
        case _:
            return _on_hosts(action)


def _on_hosts(action: HostAction) -> str:
    match action:
        case SyncTree():
            what = f"{plural(action.files, 'file')}, {size(action.total_bytes)}"
            return f"sync {action.label}: {what} to {plural(len(action.ranks), 'host')}"
        case FetchMount():
            return f"bring {action.source} to {action.destination} on {host_words(action.ranks)}"
        case RunSetup():
            return f"setup on {plural(len(action.ranks), 'host')}"
        case StartJob():
            again = f", attempt {action.attempt}" if action.attempt > 1 else ""
            return f"starting the program on {plural(len(action.ranks), 'host')}{again}"
        case StopJob():
            return f"stopping the program on {host_words(action.ranks)}: {action.why}"
        case ArmTimer():
            return f"setting the timer that ends {host_words(action.ranks)} when a limit is reached"
        case CollectStacks():
            return f"collecting stacks on {host_words(action.ranks)}: {action.why}"
