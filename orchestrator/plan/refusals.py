"""Refused creates: how far a refusal reaches, and the user's next step that its record keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.errors import RefusalScope
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent
from orchestrator.slices import Candidate

_NEXT = "; next: "
_CAUSES = {
    RefusalScope.ZONE: EndCause.REFUSED,
    RefusalScope.MARKET: EndCause.REFUSED_MARKET,
    RefusalScope.REGION: EndCause.REFUSED_REGION,
    RefusalScope.ACCOUNT: EndCause.REFUSED_ACCOUNT,
}


def cause_of_scope(scope: RefusalScope) -> EndCause:
    """Return the cause that records a refusal of this scope."""
    return _CAUSES[scope]


def join_refusal(why: str, next_step: str) -> str:
    """Return the text of a record: the cause, then the next step on the same line."""
    step = "; ".join(line.strip() for line in next_step.splitlines() if line.strip())
    return f"{why}{_NEXT}{step}" if step else why


def split_refusal(why: str) -> tuple[str, str]:
    """Return the cause and the next step of a record; "" for the step of one that has none."""
    cause, _, step = why.partition(_NEXT)
    return cause, step


def is_covered(candidate: Candidate, refused: Mapping[Candidate, Sequence[Intent]]) -> bool:
    """Return whether the refusal of another candidate says that this one would be refused too."""
    return any(_reaches(refusals[-1], candidate) for refusals in refused.values())


def choose_next_step(refusals: Iterable[Intent], usual: str) -> str:
    """Return the step of the widest refusal, else the one on which all agree, else the usual one."""
    last = list(refusals)
    wide = [one for one in last if one.cause in (EndCause.REFUSED_ACCOUNT, EndCause.REFUSED_REGION)]
    wide += [one for one in last if one.cause is EndCause.REFUSED_MARKET]
    for one in wide:
        if step := split_refusal(one.why)[1]:
            return step
    steps = {split_refusal(one.why)[1] for one in last}
    return steps.pop() or usual if len(steps) == 1 else usual


def _reaches(refusal: Intent, other: Candidate) -> bool:
    mine = refusal.candidate
    if mine.provider != other.provider:
        return False
    same_kind = mine.accelerator == other.accelerator
    same_market = type(mine.market) is type(other.market)
    match refusal.cause:
        case EndCause.REFUSED_MARKET:
            return mine.region == other.region and same_kind and same_market
        case EndCause.REFUSED_REGION:
            return mine.region == other.region
        case EndCause.REFUSED_ACCOUNT:
            return same_kind
        case _:
            return False
