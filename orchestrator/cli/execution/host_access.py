"""The one place where a command gets to the hosts of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client import choose

if TYPE_CHECKING:
    from orchestrator.hosts import HostAddress
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord


def enter_hosts(
    store: Reader,
    record: ClusterRecord,
    ranks: tuple[int, ...] | None = None,
    *,
    identity: str = "",
    connects: bool = True,
) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster to connect to, with what is presented to them, when they admit this computer.

    Args:
        store: Open.
        record: Of the cluster.
        ranks: The hosts; None for all.
        identity: File of the key to log in with; "" for this computer's own.
        connects: Whether the caller connects now. A service gives the addresses and keys of hosts only to one who does.

    Raises:
        OrchError: There is no such host, or it does not admit this computer.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator

    key = Path(identity).expanduser().absolute() if identity else None
    with TerminalNarrator(sys.stderr) as narrator:
        return choose.enter_hosts(store, record, ranks, key, narrator, connects=connects)
