"""Why something ended. Two budgets are kept apart by this word: losses (many) and failures of the program (few)."""

from __future__ import annotations

from enum import StrEnum


class EndCause(StrEnum):
    ASKED = "asked"  # the user wanted it; counts against nothing
    PREEMPTED = "preempted"  # the provider took it, or the program saved and asked to be run again
    HOST_DIED = "host-died"  # one host is gone while others answer, or it restarted under the program
    UNREACHABLE = "unreachable"  # no host answers, and the provider calls them ready
    HUNG = "hung"  # the program runs and does not move
    REFUSED = "refused"  # the provider had no machine to give; the next candidate is tried
    BROKEN = "broken"  # the slice never became usable; the next candidate is tried
    PROGRAM = "program"  # the user's program failed
    LIMIT = "limit"  # a limit of time or money was reached; counts against nothing
    EXPIRED = "expired"  # the provider takes the machines back at the time it had said; counts against nothing


SLICE_LOSSES = frozenset({EndCause.PREEMPTED, EndCause.HOST_DIED, EndCause.UNREACHABLE})
LOSSES = SLICE_LOSSES | {EndCause.HUNG}  # what counts against max_preemptions; PROGRAM against max_failures
