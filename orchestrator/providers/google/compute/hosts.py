"""From live instances to the addresses of the hosts, in rank order, and whether they have our keys. Pure.

Ranks go slice by slice and, within a slice, by the number of the TPU worker. Compute Engine tells a worker its number
(metadata `agent-worker-number`, `tpu-env`), no document says that it follows the instances' names: so the start-up
script writes it to the guest attributes. Where one host says none, or two say the same, the names give the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.hosts import HostAddress
from orchestrator.providers.core.record import name_host
from orchestrator.providers.google.addresses import SSH_PORT, Login
from orchestrator.providers.google.compute.record import Record
from orchestrator.slices import SliceState, SliceView

HOST_KEY = "hostkeys/ssh-ed25519"
WORKER = "orch/worker-id"
PORT = "orch/ssh-port"  # told only by hosts that stand on this computer


@dataclass(frozen=True, slots=True)
class Reported:
    """What the hosts report in their guest attributes; see Record."""

    order: tuple[int, ...]
    ports: tuple[int, ...]


def read_reports(record: Record, attributes: Sequence[Mapping[str, str]]) -> Reported:
    """Return what the hosts report. Their guest attributes are slice by slice, in the order of the names."""
    order: list[int] = []
    for part in record.parts:
        first = part.index * part.hosts
        mine = attributes[first : first + part.hosts]
        order += [first + place for place in _by_worker([said.get(WORKER, "") for said in mine])]
    ports = [int(said.get(PORT, "0")) for said in attributes]
    return Reported(tuple(order), tuple(ports) if all(ports) else ())


def ready_view(record: Record, instances: Mapping[str, Mapping[str, Any]], login: Login) -> SliceView:
    """READY with all hosts in rank order, or why not. instances: by name."""
    names = record.instances
    found: list[HostAddress] = []
    for rank, place in enumerate(_places(record)):
        instance = instances.get(names[place])
        if instance is None:
            return SliceView(state=SliceState.CREATING, reason=f"{names[place]} is not shown yet")
        inside, outside = _addresses(instance)
        host = inside if record.internal_ips or (login.own_ports and not outside) else outside
        if not host or not inside:
            words = f"{names[place]} has no {'internal' if record.internal_ips else 'external'} address yet"
            return SliceView(state=SliceState.CREATING, reason=words)
        found.append(
            HostAddress(
                rank=rank,
                alias=name_host(record, place),
                host=host,
                port=record.ports[place] if login.own_ports and record.ports else SSH_PORT,
                user=login.user,
                identity_file=Path(record.identity_file),
                known_hosts=Path(record.known_hosts),
                internal_ip=inside,
                host_key=" ".join(record.host_public[place].split()[:2]),
            )
        )
    return SliceView(state=SliceState.READY, hosts=tuple(found))


def names_by_rank(record: Record) -> tuple[str, ...]:
    """What the instances are called, in rank order as far as it is known."""
    return tuple(record.instances[place] for place in _places(record))


def _places(record: Record) -> tuple[int, ...]:
    """By rank: which of the names."""
    count = len(record.instances)
    return record.order if len(record.order) == count else tuple(range(count))


def _by_worker(words: Sequence[str]) -> list[int]:
    """Places in the order of the workers' numbers."""
    if sorted(words) != sorted(str(number) for number in range(len(words))):
        return list(range(len(words)))
    return sorted(range(len(words)), key=lambda place: int(words[place]))


def _addresses(instance: Mapping[str, Any]) -> tuple[str, str]:
    """Internal and external, "" for none."""
    interfaces: list[Mapping[str, Any]] = instance.get("networkInterfaces") or [{}]
    configs: list[Mapping[str, Any]] = interfaces[0].get("accessConfigs") or [{}]
    first, outside = interfaces[0], configs[0]
    return str(first.get("networkIP", "")), str(outside.get("natIP", ""))
