"""What decide() answers beside an action: wait, done, or give up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from orchestrator.exits import Exit
from orchestrator.plan.actions import Action


class WaitFor(StrEnum):
    """What a wait waits for; the engine picks the cheapest way to notice it."""

    SLICE = "slice"  # the provider
    CONTACT = "contact"  # SSH on every host
    JOB = "job"  # the program's end on some host
    GRACE = "grace"  # the others' time after a first failure
    PAUSE = "pause"  # nothing; only time has to pass


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now. until: epoch seconds of the deadline, None = as long as the program runs.

    due: epoch seconds at which what is waited for should be so, where that is known; told as a time that runs down.
    """

    on: WaitFor
    reason: str
    until: float | None
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All that was asked is so. status: the exit status for the shell."""

    message: str
    status: int = Exit.OK


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It cannot be done; the words of an OrchError. status: the exit status for the shell."""

    code: str
    status: int
    what: str
    why: str = ""
    next_step: str = ""


Step: TypeAlias = Action | Wait | Done | GiveUp
