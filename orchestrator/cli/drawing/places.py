"""Say which places a sweep asked, which it did not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.messages import to_one_line

if TYPE_CHECKING:
    from orchestrator.engine.operations.sweep import PlaceFindings
    from orchestrator.providers.registry import Rented


def describe_places(findings: Sequence[PlaceFindings], rented: Sequence[Rented]) -> list[str]:
    """Return a line with the places that answered, and one for each that was not asked or did not answer."""
    answered = [_describe_answered(one) for one in findings if one.problem is None]
    lines = [f"asked: {', '.join(answered) or 'nothing'}"]
    lines += [f"not asked: {one.provider}: {one.why}" for one in rented if not one.included]
    for one in findings:
        if one.problem is not None:
            lines.append(f"could not be asked: {one.described}: {to_one_line(str(one.problem))}")
            if one.problem.next_step:
                lines.append(f"  next: {one.problem.next_step.splitlines()[0]}")
    return lines


def _describe_answered(one: PlaceFindings) -> str:
    """Return a place with its account, and where in it slices were looked for."""
    account = one.account.partition("@")[0].rpartition(":")[2]
    details = [f"account {account}"] if account and account != one.place else []
    details += [one.searched] if one.searched else []
    return f"{one.described} ({', '.join(details)})" if details else one.described


def places_as_json(findings: Sequence[PlaceFindings], rented: Sequence[Rented]) -> list[dict[str, object]]:
    """Return every place with provider, place, whether it was asked, and the problem or reason."""
    reasons = {one.provider: one.why for one in rented}
    found: list[dict[str, object]] = [
        {
            "provider": one.provider,
            "place": one.place,
            "account": one.account or None,
            "asked": one.problem is None,
            "why": reasons.get(one.provider, ""),
            "problem": str(one.problem) if one.problem is not None else None,
        }
        for one in findings
    ]
    others: list[dict[str, object]] = [
        {"provider": one.provider, "place": "", "account": None, "asked": False, "why": one.why, "problem": None}
        for one in rented
        if not one.included
    ]
    return found + others


def exit_status_of(findings: Sequence[PlaceFindings]) -> int:
    """Return the status of the first place that could not be asked, 0 without one."""
    return next((int(one.problem.exit_status) for one in findings if one.problem is not None), 0)
