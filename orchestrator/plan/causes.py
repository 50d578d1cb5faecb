"""Why an attempt or a slice ended. The cause selects the budget: losses (many) or failures of the program (few)."""

from __future__ import annotations

from enum import StrEnum


class EndCause(StrEnum):
    """Cause of an end. The values are stored and in JSON; texts have the words of the names."""

    REQUESTED = "asked"  # requested by the user; counts against nothing
    PREEMPTED = "preempted"  # taken by the provider, or the program saved and requested a restart (exit 75)
    HOST_DIED = "host-died"  # one host is lost while others answer, or it restarted under the program
    UNREACHABLE = "unreachable"  # no host answers, and the provider reports them as ready
    EXIT_STATUS = "exit-status"  # the program ended with one of recovery.restart_on_exit_codes
    HUNG = "hung"  # the program runs without progress
    REFUSED = "refused"  # the provider had no machine to give; the next candidate is tried
    BROKEN = "broken"  # the slice never became usable; the next candidate is tried
    PROGRAM = "program"  # the user's program failed
    LIMIT = "limit"  # a limit of time or money was reached; counts against nothing
    GROWN = "grown"  # the run moves to better machines; counts against nothing
    EXPIRED = "expired"  # the provider took the machines back at the announced time; counts against nothing

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


REFUSALS = frozenset({EndCause.REFUSED, EndCause.BROKEN})  # the candidate gave no usable slice
SLICE_LOSSES = frozenset({EndCause.PREEMPTED, EndCause.HOST_DIED, EndCause.UNREACHABLE})
LOSSES = SLICE_LOSSES | {
    EndCause.EXIT_STATUS,
    EndCause.HUNG,
}  # what counts against max_preemptions; PROGRAM against max_failures
