"""Why something ended. Two budgets are kept apart by this word: preemptions (many) and failures (few)."""

from __future__ import annotations

from enum import StrEnum


class EndCause(StrEnum):
    ASKED = "asked"  # the user wanted it; counts against nothing
    PREEMPTED = "preempted"  # the provider, or a broken host, took it; counts as a preemption
    REFUSED = "refused"  # the provider had no machine to give; the next candidate is tried
    BROKEN = "broken"  # the slice never became usable; the next candidate is tried
    PROGRAM = "program"  # the user's program failed; counts as a failure
