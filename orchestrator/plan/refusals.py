"""Refused creates: how far a refusal reaches, and the user's next step that its record keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import CapacityError, OrchError, RefusalScope
from orchestrator.exits import Exit
from orchestrator.plan.observed import Intent
from orchestrator.slices import Candidate

_CODE, _NEXT, _SCOPE = "; error: ", "; next: ", "; the same in the whole "
_WIDEST = (RefusalScope.REQUEST, RefusalScope.ACCOUNT, RefusalScope.REGION, RefusalScope.MARKET)
_CAPACITY = "capacity"
# Errors of refusals that are neither about capacity nor about quota, and the exit status of a command that they end.
_STATUS = {"usage": Exit.USAGE, "permission": Exit.PERMISSION, "refused": Exit.CAPACITY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal as a record keeps it, in the text of its end.

    Attributes:
        why: The cause.
        next_step: What the user can do; "" for nothing.
        scope: Where else the same request would be refused.
        code: The code of its error, where that is neither about capacity nor about quota; else "capacity".
    """

    why: str
    next_step: str = ""
    scope: RefusalScope = RefusalScope.ZONE
    code: str = _CAPACITY

    @classmethod
    def from_error(cls, error: OrchError) -> Refusal:
        """Return what is recorded of the error of a refused create."""
        scope = error.scope if isinstance(error, CapacityError) else RefusalScope.REQUEST
        code = error.code if error.code in _STATUS else _CAPACITY
        return cls(why=str(error), next_step=error.next_step, scope=scope, code=code)

    @classmethod
    def parse(cls, text: str) -> Refusal:
        """Return the refusal of a record; also of one that says no more than its cause."""
        head, separator, word = text.rpartition(_SCOPE)
        wide = separator and word in list(RefusalScope)
        why, _, step = (head if wide else text).partition(_NEXT)
        cause, _, code = why.rpartition(_CODE)
        known = code in _STATUS
        return cls(
            why=cause if known else why,
            next_step=step,
            scope=RefusalScope(word) if wide else RefusalScope.ZONE,
            code=code if known else _CAPACITY,
        )

    def __str__(self) -> str:
        step = "; ".join(line.strip() for line in self.next_step.splitlines() if line.strip())
        scope = "" if self.scope is RefusalScope.ZONE else f"{_SCOPE}{self.scope}"
        code = "" if self.code == _CAPACITY else f"{_CODE}{self.code}"
        return f"{self.why}{code}{_NEXT}{step}{scope}" if step else f"{self.why}{code}{scope}"

    def describe_reach(self, candidate: Candidate) -> str:
        """Return where else the same request would be refused, "" for nowhere."""
        reach = {
            RefusalScope.MARKET: f" (the same in all of {candidate.region})",
            RefusalScope.REGION: f" (the same in all of {candidate.region})",
            RefusalScope.ACCOUNT: f" (the same everywhere at {candidate.provider})",
        }
        return reach.get(self.scope, "")


def explain_refusals(refusals: Iterable[Intent]) -> str:
    """Return the causes with the places that they are about; a cause of several places once."""
    found: dict[str, list[Intent]] = {}
    for one in refusals:
        found.setdefault(Refusal.parse(one.why).why.replace(f" {one.name}", ""), []).append(one)
    return "; ".join(_explain_cause(why, refused) for why, refused in found.items())


def _explain_cause(why: str, refused: Sequence[Intent]) -> str:
    place = refused[0].candidate
    reach = Refusal.parse(refused[0].why).describe_reach(place) if len(refused) == 1 else ""
    where = place.where if len(refused) == 1 else f"in {len(refused)} places"
    return f"{where}: {why}{reach}"


def choose_ending(refusals: Iterable[Intent]) -> tuple[str, Exit]:
    """Return the error code and the exit status of a command that these refusals end.

    One that is about capacity or quota leaves the hope that the same command succeeds later.
    """
    codes = {Refusal.parse(one.why).code for one in refusals}
    code = codes.pop() if len(codes) == 1 else _CAPACITY
    return code, _STATUS.get(code, Exit.CAPACITY)


def is_hopeless(refusals: Iterable[Intent]) -> bool:
    """Return whether the same requests would be refused later, too."""
    return all(Refusal.parse(one.why).scope is RefusalScope.REQUEST for one in refusals)


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
        case RefusalScope.REQUEST:
            return True
        case RefusalScope.ZONE:
            return False
