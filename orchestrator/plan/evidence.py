"""Classify what went wrong on running hosts, by their answers, silence and heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.hosts import JobPhase
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Contact, HostView
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Wait, WaitFor


@dataclass(frozen=True, slots=True)
class Hang:
    """A program without progress.

    Attributes:
        why: Message for the user.
        step: Last step that every rank reached.
        rank: The rank that stopped first; None when all stopped at the same step.
    """

    why: str
    step: int
    rank: int | None


def classify_silence(hosts: tuple[HostView, ...]) -> EndCause:
    """Return the cause of silent hosts: one died, or none can be reached (it may be our own network)."""
    return EndCause.HOST_DIED if any(host.contact is Contact.OK for host in hosts) else EndCause.UNREACHABLE


def wait_for_contact(hosts: tuple[HostView, ...], until: float) -> Wait:
    """Return the wait for SSH on the hosts that do not answer, with the reason of the first."""
    silent = [host for host in hosts if host.contact is not Contact.OK]
    first = next((host for host in silent if host.silence), None)
    several = f"host {first.rank}: " if first is not None and len(silent) > 1 else ""
    why = f" ({several}{first.silence})" if first is not None else ""
    return Wait(
        on=WaitFor.CONTACT, reason=f"waiting for SSH on {format_hosts(host.rank for host in silent)}{why}", until=until
    )


def detect_hang(hosts: tuple[HostView, ...], deadline: float) -> Hang | None:
    """Return the hang of a program that made no progress for `deadline` seconds; None where ranks report no steps.

    The ranks of a program wait for each other. Where their steps differ, the slowest rank stopped first and the others
    wait for it. Where the steps are equal, all ranks are stuck in the same collective operation.
    """
    reporting = [host for host in hosts if host.job is JobPhase.RUNNING and host.step is not None]
    frozen = [host for host in reporting if host.beat_age is not None and host.beat_age >= deadline]
    if deadline <= 0 or not frozen:
        return None
    slowest, fastest = min(_step(host) for host in reporting), max(_step(host) for host in reporting)
    age = max(host.beat_age or 0.0 for host in frozen)
    if slowest == fastest:
        return Hang(f"no rank passed step {slowest} for {age:.0f} s: stuck in a collective operation", slowest, None)
    behind = [host.rank for host in reporting if host.step == slowest]
    why = f"{format_hosts(behind)} stopped at step {slowest} while others reached {fastest}, {age:.0f} s ago"
    return Hang(why, slowest, behind[0])


def find_furthest_step(hosts: tuple[HostView, ...]) -> int | None:
    """Return the highest step that a host reported, if any."""
    steps = [host.step for host in hosts if host.step is not None]
    return max(steps) if steps else None


def _step(host: HostView) -> int:
    return host.step if host.step is not None else 0
