"""The end of a command that met a host whose folder is of another version of orch: nothing is run or ended there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.next_step import NextStep
from orchestrator.plan.observed import Contact, HostView
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import GiveUp


def find_other_version(cluster: str, hosts: Sequence[HostView], *, end: str = "") -> GiveUp | None:
    """Return the end of the command if a host has a folder of another version; else None.

    end: The command that ends the cluster in spite of it; "" for the usual one.
    """
    found = [host for host in hosts if host.contact is Contact.OTHER_VERSION]
    if not found:
        return None
    return _make_refusal(cluster, (host.rank for host in found), found[0].silence, found[0].remedy, end)


def raise_other_version(cluster: str, outcomes: Iterable[HostOutcome]) -> None:
    """Raise an OrchError if a host refused a command because its folder is of another version."""
    found = [outcome for outcome in outcomes if outcome.failure is Failure.OTHER_VERSION]
    if found:
        ranks = (outcome.rank for outcome in found)
        raise _make_refusal(cluster, ranks, found[0].detail, found[0].remedy).make_error()


def _make_refusal(cluster: str, ranks: Iterable[int], why: str, remedy: str, end: str = "") -> GiveUp:
    end = end or f"orch down {cluster}"
    return GiveUp(
        code="host-version",
        status=Exit.CONFLICT,
        what=f"{format_hosts(ranks)} of '{cluster}': {why}",
        why="nothing was run there, and no machine is ended because of it",
        next_step=NextStep(words=f"{remedy}\nor end the cluster: {end}"),
    )
