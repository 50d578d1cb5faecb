"""From the live nodes to the addresses of the hosts. The plan's host count is only compared with them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.hosts import HostAddress
from orchestrator.providers.core.record import name_host
from orchestrator.providers.google.record import Record
from orchestrator.slices import SliceState, SliceView

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Login:
    """user: on the hosts. own_ports: the endpoints name the port of SSH; Google's name another service there."""

    user: str
    own_ports: bool = False


def ready_view(record: Record, nodes: Sequence[Any], login: Login) -> SliceView:
    """READY with all hosts in rank order (slice by slice, worker by worker), or why not."""
    found: list[HostAddress] = []
    for node in nodes:
        workers = endpoints(node)
        if len(workers) != record.hosts_per_slice:
            words = f"{_last(node.name)} has {len(workers)} hosts, {record.hosts_per_slice} were planned"
            return SliceView(state=SliceState.FAILED, reason=words)
        for worker in workers:
            host = _reached_at(record, worker, login)
            if not host:
                words = f"host {len(found)} has no {'internal' if record.internal_ips else 'external'} address yet"
                return SliceView(state=SliceState.CREATING, reason=words)
            found.append(_address(record, len(found), host, worker, login))
    return SliceView(state=SliceState.READY, hosts=tuple(found))


def endpoints(node: Any) -> list[Any]:
    """One per worker: with several networks a host has an endpoint in each (gcloud 528 counts so)."""
    networks = max(1, len(node.network_configs))
    return list(node.network_endpoints)[::networks]


def _reached_at(record: Record, worker: Any, login: Login) -> str:
    external = str(worker.access_config.external_ip)
    if record.internal_ips or (login.own_ports and not external):
        return str(worker.ip_address)
    return external


def _address(record: Record, rank: int, host: str, worker: Any, login: Login) -> HostAddress:
    return HostAddress(
        rank=rank,
        alias=name_host(record, rank),
        host=host,
        port=int(worker.port) if login.own_ports and worker.port else SSH_PORT,
        user=login.user,
        identity_file=Path(record.identity_file),
        known_hosts=Path(record.known_hosts),
        internal_ip=str(worker.ip_address),
        host_key=" ".join(record.host_public[rank].split()[:2]) if record.host_public else None,
    )


def _last(path: str) -> str:
    return path.rpartition("/")[2]
