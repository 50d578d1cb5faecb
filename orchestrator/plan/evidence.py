"""Telling apart what may have gone wrong on running hosts, from what they say and what they do not say."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.hosts import JobPhase
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Contact, HostView
from orchestrator.plan.ranks import host_words


@dataclass(frozen=True, slots=True)
class Hang:
    """why: in words. step: the last one that all had reached. rank: who stopped first, None when all stand equal."""

    why: str
    step: int
    rank: int | None


def silence(hosts: tuple[HostView, ...]) -> EndCause:
    """What it means that some hosts do not answer: one died, or none can be reached (it may be our own network)."""
    return EndCause.HOST_DIED if any(host.contact is Contact.OK for host in hosts) else EndCause.UNREACHABLE


def hang(hosts: tuple[HostView, ...], deadline: float) -> Hang | None:
    """The program runs on these hosts and has not moved for `deadline` seconds. None where nobody tells its steps.

    Ranks of one program wait for each other. Unequal step counts: the slowest rank stopped first, the others wait for
    it. Equal ones: all stand in the same collective operation.
    """
    telling = [host for host in hosts if host.job is JobPhase.RUNNING and host.step is not None]
    frozen = [host for host in telling if host.beat_age is not None and host.beat_age >= deadline]
    if deadline <= 0 or not frozen:
        return None
    slowest, fastest = min(_step(host) for host in telling), max(_step(host) for host in telling)
    age = max(host.beat_age or 0.0 for host in frozen)
    if slowest == fastest:
        return Hang(
            f"no rank moved past step {slowest} for {age:.0f} s: stuck in a collective operation", slowest, None
        )
    behind = [host.rank for host in telling if host.step == slowest]
    words = f"{host_words(behind)} stopped at step {slowest} while others reached {fastest}, {age:.0f} s ago"
    return Hang(words, slowest, behind[0])


def furthest(hosts: tuple[HostView, ...]) -> int | None:
    """The last step that some host has told."""
    steps = [host.step for host in hosts if host.step is not None]
    return max(steps) if steps else None


def _step(host: HostView) -> int:
    return host.step if host.step is not None else 0
