"""The one place where a command gets to the hosts of a cluster: with the store's records, or through a service."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.parameters.clusters import admit_this_computer, select_hosts
from orchestrator.service_address import find_server

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
    from orchestrator.engine.state.fences import fence_recorded_hosts

    key = Path(identity).expanduser().absolute() if identity else None
    if find_server(os.environ):
        from orchestrator.cli.execution.served_hosts import enter_served

        select_hosts(record, ranks)
        entered = replace(record, hosts=enter_served(store, record, key))
        return select_hosts(replace(entered, hosts=fence_recorded_hosts(store, entered)), ranks)
    hosts = select_hosts(replace(record, hosts=fence_recorded_hosts(store, record)), ranks)
    if connects:
        admit_this_computer(store, replace(record, hosts=hosts), own_key=key is None)
    return hosts if key is None else tuple(replace_identity(host, key) for host in hosts)


def replace_identity(host: HostAddress, identity: Path) -> HostAddress:
    """Return the address with another key, for itself and for those of its jump hosts that orch made."""
    jump = replace_identity(host.jump, identity) if host.jump is not None else None
    return replace(host, identity_file=host.identity_file if host.own is not None else identity, jump=jump)
