"""What OpenSSH needs to connect to a host as orch does: the keys of hosts in files, and our own key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from orchestrator.hosts import HostAddress


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


def replace_identity(host: HostAddress, identity: Path) -> HostAddress:
    """Return the address with another key, for itself and for those of its jump hosts that orch made."""
    jump = replace_identity(host.jump, identity) if host.jump is not None else None
    return replace(host, identity_file=host.identity_file if host.own is not None else identity, jump=jump)
