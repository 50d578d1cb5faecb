"""Choice of the fault of a call, and the errors that are answered before anything is done."""

from __future__ import annotations

from orchestrator.simulator.calls import ApiError, Code
from orchestrator.simulator.scenario import ANY, Fault, FaultKind
from orchestrator.simulator.world import World

MACHINES = "machines"
"""The call of a scenario that means every request for machines: create, or a queued request."""
_REFUSALS = {
    FaultKind.THROTTLED: (Code.THROTTLED, "too many requests; slow down"),
    FaultKind.INTERNAL: (Code.INTERNAL, "an internal error has occurred"),
    FaultKind.UNAVAILABLE: (Code.UNAVAILABLE, "the service is unavailable"),
    FaultKind.DENIED: (Code.DENIED, "you are not allowed to do this"),
    FaultKind.NO_CAPACITY: (Code.NO_CAPACITY, "there is no capacity now"),
    FaultKind.TIMEOUT_BEFORE: (Code.TIMEOUT, "no answer within the deadline"),
}
_ONLY: dict[FaultKind, frozenset[str]] = {
    FaultKind.NO_CAPACITY: frozenset({"create", "start"}),
    FaultKind.LATE: frozenset({"create", "end"}),
    FaultKind.LATE_STOCKOUT: frozenset({"create"}),
    FaultKind.HALF_MADE: frozenset({"create"}),
    FaultKind.SLOW: frozenset({"create", "start", "stop", "end"}),
    FaultKind.IGNORED: frozenset({"start", "stop", "end"}),
    FaultKind.STUCK: frozenset({"end"}),
    FaultKind.STALE: frozenset({"get", "list"}),
    FaultKind.EMPTY_PAGE: frozenset({"list"}),
    FaultKind.PARTIAL: frozenset({"list"}),
}


def can_befall(kind: FaultKind, call: str) -> bool:
    """Return whether this fault can apply to this operation."""
    call = "create" if call == MACHINES else call
    host_fault = kind.value.startswith("host-")
    return host_fault == call.startswith("host.") and call in _ONLY.get(kind, {call})


def pick(world: World, call: str) -> Fault | None:
    """Count the call and return the first fault of the scenario that applies to it."""
    state, scenario = world.state, world.scenario
    number = state.counts.get(call, 0) + 1
    state.counts[call] = number
    if call not in scenario.faulty and ANY not in scenario.faulty:
        return None
    age = state.now - state.began
    named = (call,) if call == MACHINES else (call, ANY)  # `*` was asked for the call itself
    for index, fault in enumerate(scenario.faults):
        if fault.call not in named or not can_befall(fault.kind, call) or not fault.begin <= age <= fault.end:
            continue
        key = f"fault {index}"
        if fault.times and state.fired.get(key, 0) >= fault.times:
            continue
        if number in fault.nth or (fault.rate and world.chance() < fault.rate):
            state.fired[key] = state.fired.get(key, 0) + 1
            return fault
    return None


def refuse(fault: Fault | None) -> None:
    """Raise the error of a fault that is answered before anything is done.

    Raises:
        ApiError: The fault is of this kind.
    """
    if fault is not None and fault.kind is FaultKind.ANSWER:
        raise ApiError(Code.DENIED, f"the vendor's answer {fault.answer}", fault.answer)
    if fault is not None and fault.kind in _REFUSALS:
        code, words = _REFUSALS[fault.kind]
        raise ApiError(code, words)
