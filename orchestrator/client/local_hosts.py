"""Hosts of the clusters in the store of this computer's commands, for commands that connect to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.store.lookup import select_hosts

if TYPE_CHECKING:
    from orchestrator.engine.narrator import Narrator
    from orchestrator.hosts import HostAddress
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord


def enter_local_hosts(
    store: Reader,
    record: ClusterRecord,
    ranks: tuple[int, ...] | None,
    key: Path | None,
    narrator: Narrator,
    *,
    connects: bool,
) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster, which admit this computer's address and key before a command connects to them.

    Args:
        store: Open.
        record: The cluster.
        ranks: The hosts; None for all.
        key: File of the key to log in with; None for this computer's own.
        narrator: Gets what is done.
        connects: Whether the caller connects now.

    Raises:
        AccessError: The hosts do not admit the key, or IAM refuses the connection.
        OrchError: There is no such host.
    """
    hosts = select_hosts(replace(record, hosts=fence_recorded_hosts(store, record)), ranks)
    if connects:
        from orchestrator.engine.operations.addresses import admit_here
        from orchestrator.engine.operations.own_key import refuse_without_key

        chosen = replace(record, hosts=hosts)
        admit_here(store, chosen, narrator)
        if key is None:
            refuse_without_key(store, chosen, narrator)
    return hosts if key is None else tuple(replace_identity(host, key) for host in hosts)


def replace_identity(host: HostAddress, identity: Path) -> HostAddress:
    """Return the address with another key, for itself and for those of its jump hosts that orch made."""
    jump = replace_identity(host.jump, identity) if host.jump is not None else None
    return replace(host, identity_file=host.identity_file if host.own is not None else identity, jump=jump)
