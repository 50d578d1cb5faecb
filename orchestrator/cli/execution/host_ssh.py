"""What OpenSSH needs to connect to a host as orch does: the keys of hosts in files, and our own key."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.client.host_records import open_host_records
from orchestrator.errors import ConflictError
from orchestrator.hosts import HostAddress
from orchestrator.slices import SliceState
from orchestrator.store.lookup import find_cluster
from orchestrator.store.records import ClusterRecord


def prepare_ssh(cluster: str, rank: int, identity: str = "", *, connects: bool = True) -> tuple[HostAddress, bool]:
    """Return a host of a running cluster, ready for `hosts.ssh_argv`, and whether only known keys are accepted.

    Args:
        cluster: The cluster's name.
        rank: The host.
        identity: File of the key to log in with; "" for ours.
        connects: Whether the caller connects now, and does not only print the command.

    Raises:
        OrchError: There is no such host, its cluster is stopped, or it does not admit this computer.
    """
    with open_host_records(cluster) as store:
        record = find_cluster(store, cluster)
        if connects:
            refuse_stopped(record)
        host = enter_hosts(store, record, (rank,), identity=identity, connects=connects)[0]
    own = any(hop.own is not None for hop in host.hops)
    if own:
        from orchestrator.engine.state.pins import write_keys_for_ssh

        write_keys_for_ssh(host, write_stderr)
    if connects:
        write_pinned_keys([host])
    return host, own


def refuse_stopped(record: ClusterRecord) -> None:
    """Raise ConflictError for a cluster whose machines are stopped, so that they cannot answer."""
    if record.last_state == SliceState.STOPPED:
        raise ConflictError(f"cluster '{record.name}' is stopped", next_step=f"orch start {record.name}")


def write_pinned_keys(hosts: Iterable[HostAddress]) -> None:
    """Write the pinned keys where ssh reads them: on a computer that has not connected to these hosts yet."""
    files: dict[Path, str] = {}
    missing: dict[Path, list[HostAddress]] = {}
    for hop in (hop for host in hosts for hop in host.hops if hop.host_key is not None):
        path = hop.known_hosts
        if path not in files:
            files[path] = path.read_text() if path.exists() else ""
        if f"{hop.alias} " not in files[path]:
            missing.setdefault(path, []).append(hop)
    if missing:
        from orchestrator.remote.keys import write_known_hosts

        for path, hops in missing.items():
            write_known_hosts(path, hops)
