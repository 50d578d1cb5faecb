"""Refused creates: how far a refusal reaches, and the user's next step that its record keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import RefusalScope
from orchestrator.plan.observed import Intent
from orchestrator.slices import Candidate

_NEXT, _SCOPE = "; next: ", "; the same in the whole "
_WIDEST = (RefusalScope.ACCOUNT, RefusalScope.REGION, RefusalScope.MARKET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a record keeps of a refusal, in the text of its end: an older orch shows that text as it is.

    Attributes:
        why: The cause.
        next_step: What the user can do; "" for nothing.
        scope: Where else the same request would be refused.
    """

    why: str
    next_step: str = ""
    scope: RefusalScope = RefusalScope.ZONE

    @classmethod
    def parse(cls, text: str) -> Refusal:
        """Return the refusal of a record; also of one that says no more than its cause."""
        head, separator, word = text.rpartition(_SCOPE)
        wide = separator and word in list(RefusalScope)
        why, _, step = (head if wide else text).partition(_NEXT)
        return cls(why=why, next_step=step, scope=RefusalScope(word) if wide else RefusalScope.ZONE)

    def __str__(self) -> str:
        step = "; ".join(line.strip() for line in self.next_step.splitlines() if line.strip())
        scope = "" if self.scope is RefusalScope.ZONE else f"{_SCOPE}{self.scope}"
        return f"{self.why}{_NEXT}{step}{scope}" if step else f"{self.why}{scope}"

    def explain(self, candidate: Candidate) -> str:
        """Return the cause, with the place that it is about."""
        reach = {
            RefusalScope.MARKET: f" (the same in all of {candidate.region})",
            RefusalScope.REGION: f" (the same in all of {candidate.region})",
            RefusalScope.ACCOUNT: f" (the same everywhere at {candidate.provider})",
        }
        return f"{candidate.where}: {self.why}{reach.get(self.scope, '')}"


def is_covered(candidate: Candidate, refused: Mapping[Candidate, Sequence[Intent]]) -> bool:
    """Return whether the refusal of another candidate says that this one would be refused too."""
    return any(_reaches(refusals[-1], candidate) for refusals in refused.values())


def choose_next_step(refusals: Iterable[Intent], usual: str) -> str:
    """Return the step of the widest refusal, else the one on which all agree, else the usual one."""
    last = [Refusal.parse(one.why) for one in refusals]
    wide = [one for scope in _WIDEST for one in last if one.scope is scope and one.next_step]
    if wide:
        return wide[0].next_step
    steps = {one.next_step for one in last}
    return steps.pop() or usual if len(steps) == 1 else usual


def _reaches(refusal: Intent, other: Candidate) -> bool:
    mine = refusal.candidate
    if mine.provider != other.provider:
        return False
    same_kind = mine.accelerator == other.accelerator
    match Refusal.parse(refusal.why).scope:
        case RefusalScope.MARKET:
            return mine.region == other.region and same_kind and type(mine.market) is type(other.market)
        case RefusalScope.REGION:
            return mine.region == other.region
        case RefusalScope.ACCOUNT:
            return same_kind
        case RefusalScope.ZONE:
            return False
