"""From the instances of a slice to the addresses of its hosts. Pure.

Rank is the launch index. Under EFA several interfaces of an instance have the device index 0, one on each card: the
first one is that of card 0 (EC2 User Guide, "Network interfaces on network cards", 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.hosts import HostAddress
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.calls import Thing, read_tags
from orchestrator.providers.aws.record import Record
from orchestrator.providers.core.record import name_host
from orchestrator.providers.ssh_config import add_jump_hosts

SSH_PORT = 22
PORT_TAG = "orch-ssh-port"  # only instances that stand on this computer have it
DOCUMENT = "AWS-StartSSHSession"  # Systems Manager User Guide, "SSH connections through Session Manager", 2026


@dataclass(frozen=True, slots=True)
class Login:
    """user: on hosts that stand on this computer; "" for those of EC2, whose record says it."""

    user: str = ""

    @property
    def here(self) -> bool:
        return bool(self.user)


def ranked(instances: Sequence[Thing]) -> list[Thing]:
    return sorted(instances, key=lambda one: int(one.get("AmiLaunchIndex", 0)))


def primary(instance: Thing) -> Thing:
    """Its first network interface. Raises LookupError when none is shown."""
    interfaces: Sequence[Thing] = instance.get("NetworkInterfaces", ())
    for one in interfaces:
        attachment: Thing = one.get("Attachment", {})
        if not attachment.get("NetworkCardIndex", 0) and not attachment.get("DeviceIndex", 0):
            return one
    raise LookupError(f"{instance.get('InstanceId')} shows no first network interface")


def addresses(record: Record, instances: Sequence[Thing], login: Login) -> tuple[HostAddress, ...] | str:
    """Of all hosts in rank order, or what is not there yet, in words."""
    if len(instances) != record.hosts:  # a look may be behind the one before it
        return f"{len(instances)} of {record.hosts} instances are shown"
    found: list[HostAddress] = []
    for rank, instance in enumerate(ranked(instances)):
        if int(instance.get("AmiLaunchIndex", 0)) != rank:
            return f"the launch indexes of the instances are not 0 to {record.hosts - 1}"
        host = _address(record, rank, instance, login)
        if not host.host:
            return f"{host.label} has no {'public' if _is_public(record, rank) else 'private'} address yet"
        found.append(host)
    return tuple(_led(record, host, found[0], login) for host in found)


def _address(record: Record, rank: int, instance: Thing, login: Login) -> HostAddress:
    inside, outside = str(instance.get("PrivateIpAddress") or ""), str(instance.get("PublicIpAddress") or "")
    port = read_tags(instance).get(PORT_TAG, "") if login.here else ""
    host = outside if _is_public(record, rank) else inside
    if login.here:
        host = outside or inside
    elif record.way == Way.SSM:
        host = str(instance["InstanceId"])
    return HostAddress(
        rank=rank,
        alias=name_host(record, rank),
        host=host,
        port=int(port) if port.isdecimal() else SSH_PORT,
        user=login.user or record.user,
        identity_file=Path(record.identity_file),
        known_hosts=Path(record.known_hosts),
        internal_ip=inside,
        host_key=" ".join(record.host_public[rank].split()[:2]),
    )


def _led(record: Record, host: HostAddress, head: HostAddress, login: Login) -> HostAddress:
    """The same host with its way. Hosts that stand on this computer need none."""
    if login.here:
        return host
    match record.way:
        case Way.EIP if host.rank > 0:
            return replace(host, jump=head)
        case Way.SSM:
            return replace(host, proxy=_session(record, host.host))
        case Way.JUMP:
            return add_jump_hosts(host, record.jump, name=record.name)
        case _:
            return host


def _session(record: Record, instance: str) -> tuple[str, ...]:
    profile = ("--profile", record.profile.replace("%", "%%")) if record.profile else ()
    target = ("--target", instance, "--document-name", DOCUMENT, "--parameters", "portNumber=%p")
    return ("aws", "ssm", "start-session", *target, "--region", record.region, *profile)


def _is_public(record: Record, rank: int) -> bool:
    return record.way in (Way.PUBLIC, Way.EIPS) or (record.way == Way.EIP and rank == 0)
