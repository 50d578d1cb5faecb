"""A wish with everything needed to preview it or to fulfil it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.suits import mismatch
from orchestrator.errors import OrchError
from orchestrator.hosts import HostOutcome
from orchestrator.plan.desired import Desired, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Ended, Observed
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.store.records import NewJob


@dataclass(frozen=True, slots=True)
class Ready:
    """desired, facts: for decide(). known: the world as last recorded, where a preview starts.

    job: what the store opens before the first step; None for verbs that run nothing. notes: lines to say first
    (a normalised name, a bucket in another region, an assumption of the preview). of: uid of the cluster whose job is
    gone on with: when that one is gone or stopped, nothing is made or started; "" for a command that may make one.
    refused: why the task itself cannot work; see `refusal`. advice: what the training needs on each kind of machine, as
    trainer/shape/advice.py has it in JSON; () for other tasks.
    """

    cluster: str
    verb: str
    summary: str
    desired: Desired
    known: Observed
    facts: Facts
    job: NewJob | None = None
    notes: tuple[str, ...] = ()
    of: str = ""
    refused: OrchError | None = None
    advice: tuple[Mapping[str, Any], ...] = ()

    def check(self) -> None:
        """Raises OrchError when it must not be done."""
        if (refusal := self.refusal()) is not None:
            raise refusal

    def refusal(self) -> OrchError | None:
        """Why it may be previewed and not done."""
        desired, now = self.desired, self.known
        if self.refused is None and isinstance(desired, Run) and desired.create and not now.started:
            return mismatch(self.cluster, now, desired.candidates)
        return self.refused


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended. outcomes: one per host for the last program or setup, in rank order, when there was one."""

    step: Done | GiveUp
    outcomes: tuple[HostOutcome, ...] = ()
    job_id: int | None = None
    run_id: str = ""
    attempts: tuple[Ended, ...] = ()  # those that ended before the last one

    @property
    def status(self) -> int:
        return int(self.step.status)
