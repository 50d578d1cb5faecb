"""Actions that report success and have no effect.

A host whose shell does not run what it is sent, or a provider that drops requests, would be asked for ever. Three such
successes in a row are a failure like any other: `decide` handles it by the rules that it has for that action. Ending
machines is never given up: such a request is sent again, with pauses, until the deadline reports the machines.
"""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.next_step import NextStep
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
    NextAttempt,
    RunSetup,
    StartJob,
    StartSlice,
    StopJob,
    StopSlice,
    SyncTree,
)
from orchestrator.plan.observed import ActionFailure, ActionSuccess, HostView, Observed
from orchestrator.plan.ranks import format_hosts, label_rank
from orchestrator.plan.steps import Done, GiveUp, Step, Wait

MOST_SUCCESSES = 3
NO_EFFECT = "no-effect"  # code of the failure
_TIMER = "timer"  # label of the mark that ArmTimer leaves
_NAMES: dict[type[Action], str] = {
    SyncTree: "sync {0.label}",
    FetchMount: "copying {0.source}",
    RunSetup: "setup",
    StartJob: "starting the program",
    StopJob: "stopping the program",
    CollectStacks: "collecting stacks",
    ArmTimer: "setting the limits timer",
    CreateSlice: "creating {0.spec.name}",
    StopSlice: "stopping {0.name}",
    StartSlice: "starting {0.name}",
    EndSlice: "ending {0.name}",
    ForgetSlice: "closing the record of {0.name}",
    EndAttempt: "recording why attempt {0.attempt} ends",
    NextAttempt: "opening attempt {0.attempt}",
    Conclude: "recording the result",
}
_IDENTITY = ("name", "generation", "job", "label", "digest", "attempt", "ranks")


def identify_action(action: Action) -> str:
    """Return what two actions have in common that would have the same effect: not their reasons, which hold times."""
    values = [f"{field}={getattr(action, field)}" for field in _IDENTITY if hasattr(action, field)]
    return " ".join((type(action).__name__, *values))


def count_success(before: ActionSuccess | None, action: Action) -> ActionSuccess:
    """Return the success of an action, with how often it succeeded in a row."""
    identity = identify_action(action)
    times = before.times + 1 if before is not None and before.action == identity else 1
    return ActionSuccess(identity, times)


def find_missing_effect(cluster: str, step: Step, observed: Observed) -> ActionFailure | None:
    """Return the failure of an action that would be taken once more although it succeeded three times; else None."""
    done = observed.succeeded
    if done is None or done.times < MOST_SUCCESSES or isinstance(step, Wait | Done | GiveUp | EndSlice):
        return None
    if identify_action(step) != done.action:
        return None
    ranks: tuple[int, ...] = getattr(step, "ranks", ())
    where = f" on {format_hosts(ranks)}" if ranks else ""
    inspect = NextStep(f"orch status {cluster} --refresh", "then the same command again")
    if ranks:
        words = "to inspect the host: its login shell may not run what it is sent"
        inspect = NextStep(f"orch ssh {cluster} {ranks[0]}", words)
    return ActionFailure(
        action=type(step).__name__,
        connection_lost=False,
        what=f"{_NAMES[type(step)].format(step)} reported success {done.times} times{where}, and has no effect",
        why=_describe_sight(step, observed),
        code=NO_EFFECT,
        status=Exit.SETUP_FAILED if ranks and not isinstance(step, StopJob) else Exit.FAILURE,
        times=done.times,
        next_step=inspect,
        final=True,
    )


def _describe_sight(action: Action, observed: Observed) -> str:
    """Return what was observed in place of the effect, of the first host that lacks it."""
    ranks: tuple[int, ...] = getattr(action, "ranks", ())
    host = next((host for host in observed.hosts if host.rank in ranks), None)
    match action:
        case SyncTree() | FetchMount() if host is not None:
            return _describe_mark(host, action.label)
        case ArmTimer() if host is not None:
            return _describe_mark(host, _TIMER)
        case RunSetup() if host is not None:
            return f"{label_rank(host.rank)} shows {'another setup' if host.setup else 'no setup'} as passed"
        case StartJob() | StopJob() if host is not None:
            shown = "as never started" if host.job is JobPhase.ABSENT else f"as {host.job}"
            return f"{label_rank(host.rank)} shows the program {shown}"
        case CreateSlice() | StopSlice() | StartSlice():
            return f"the provider shows it as {observed.slice_state}"
        case _:
            return "the record is as before"


def _describe_mark(host: HostView, label: str) -> str:
    held = dict(host.trees).get(label)
    shown = f"{label} {held[:8]}, which is another version" if held else f"no {label}"
    return f"{label_rank(host.rank)} shows {shown}"
