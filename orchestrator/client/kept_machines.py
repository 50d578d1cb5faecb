"""The line about machines that a command leaves, and that cost money until they are ended."""

from __future__ import annotations

from orchestrator.client.base import Document
from orchestrator.formatting import format_rate
from orchestrator.plan.ranks import count_hosts

_NOT_THERE = ("stopped", "planned", "ending")


def describe_kept_machines(status: Document, idle: str) -> list[str]:
    """Return the lines for the one cluster in a document of `orch status`; none where it has no machines.

    Args:
        status: The document.
        idle: What the machines do by themselves when they are idle; "" for nothing.
    """
    cluster = status["clusters"][0]
    machines = cluster["machines"]
    if machines is None or cluster["state"] in _NOT_THERE:
        return []
    price = machines["list_price_per_hour"]
    cost = f" at {format_rate(price)}" if price else ""
    verb = "keeps" if machines["hosts"] == 1 else "keep"
    line = f"{count_hosts(machines['hosts'])} {verb} running{cost} until: orch down {cluster['name']}"
    return [line, *([f"  {idle}"] if idle else [])]
