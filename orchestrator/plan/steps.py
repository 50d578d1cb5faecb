"""The answers of decide() other than an action: wait, done, or give up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.plan.actions import Action


class WaitFor(StrEnum):
    """The event that ends a wait; the engine picks the cheapest way to notice it."""

    SLICE = "slice"  # the provider
    CONTACT = "contact"  # SSH on every host
    JOB = "job"  # the program's end on some host
    GRACE = "grace"  # the others' time after a first failure
    PAUSE = "pause"  # nothing; only time has to pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do now.

    Attributes:
        until: Epoch seconds of the deadline; None for as long as the program runs.
        due: Epoch seconds at which the event is expected, where known; shown as a countdown.
        stops: Epoch seconds at which requests for machines stop, unless they get some before; None for other waits.
        repeat: Whether a log repeats the line while the reason stays the same.
    """

    on: WaitFor
    reason: str
    until: float | None
    due: float | None = None
    stops: float | None = None
    repeat: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """Everything requested was done."""

    message: str
    status: int = Exit.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The request cannot be fulfilled; the texts, code and status are those of an OrchError."""

    code: str
    status: int
    what: str
    why: str = ""
    next_step: NextStep = NO_STEP

    def make_error(self) -> OrchError:
        """Return the error that it describes."""
        error = OrchError(self.what, self.why, str(self.next_step))
        error.code, error.exit_status = self.code, int(self.status)
        return error


Step: TypeAlias = Action | Wait | Done | GiveUp
