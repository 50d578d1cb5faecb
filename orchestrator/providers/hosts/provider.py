"""The hosts provider: a slice is a line in our own notes about machines that are the user's.

READY at once, never ended by us. How a machine is reached is what its owner's own `ssh` would do; see ssh_config.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from orchestrator.clock import ServerClock
from orchestrator.errors import CloudError, ConflictError, UserError
from orchestrator.hosts import HostAddress, hosts_from_json, hosts_to_json
from orchestrator.providers.core.listed import read_owner
from orchestrator.providers.hosts.machines import OwnHost, from_details, refuse_twins
from orchestrator.providers.records import FolderRecords, RecordFiles, Records, RecordSource, check_slice_name
from orchestrator.providers.ssh_config import config_stamp, own_address
from orchestrator.slices import Candidate, OwnedSlice, SliceKeys, SliceSpec, SliceState, SliceView

FOLDER = "hosts"  # of the records, below the state folder
_AT_ONCE = 8  # programs that read the SSH configuration


def open_provider(
    state: Path, _clock: ServerClock | None = None, records: RecordSource = FolderRecords
) -> HostsProvider:
    return HostsProvider(records(state.absolute() / FOLDER))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """hosts: as the task names them. created: epoch seconds.

    addresses: What the person's SSH configuration made of the hosts when it had this stamp; hosts_to_json.
    """

    name: str
    cluster: str
    token: str
    created: float
    labels: dict[str, str]
    known_hosts: str
    hosts: tuple[OwnHost, ...]
    stamp: str = ""
    addresses: str = ""


class _Notes(RecordFiles[_Note]):
    every = "the records of hosts"

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> _Note:
        fields |= {"hosts": tuple(OwnHost(**host) for host in fields["hosts"])}
        return _Note(**fields)


class HostsProvider:
    """See providers/protocol.py. Cannot stop or preempt."""

    name = "hosts"

    def __init__(self, records: Records) -> None:
        self._notes = _Notes(records)

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Raises UserError for a key that is not there, ConflictError when the name is taken."""
        machines = from_details(spec.candidate)
        stamp = config_stamp()
        addresses = _resolve(machines, spec.name, keys.known_hosts)
        refuse_twins(addresses)
        _refuse_unusable_keys(addresses, keys)
        note = _Note(
            name=spec.name,
            cluster=spec.cluster,
            token=spec.token.reveal(),
            created=time.time(),
            labels={key: value.reveal() for key, value in spec.labels},
            known_hosts=keys.known_hosts,
            hosts=machines,
            stamp=stamp,
            addresses=hosts_to_json(addresses),
        )
        found = self._notes.read(check_slice_name(spec.name))
        if found is not None and found.token == note.token:
            return
        if found is not None:
            raise ConflictError(
                f"hosts are recorded as '{spec.name}' already",
                "for another request",
                f"orch down {found.cluster}   (the machines stay as they are)",
            )
        self._notes.put(note)

    def check_unattended_login(self, candidate: Candidate) -> None:
        """Raise UserError when a key would need a passphrase, which no one types in the background."""
        from orchestrator.remote.identities import KeyRing

        ring = KeyRing(attended=False)
        for address in _resolve(from_details(candidate), candidate.provider, ""):
            ring.has_identity(address)

    def observe(self, name: str, token: str = "") -> SliceView:
        """Raises UserError while the person's SSH configuration cannot be read."""
        try:
            note = self._notes.read(check_slice_name(name))
            hosts = () if note is None else _addresses(note)
        except CloudError as error:
            return SliceView(state=SliceState.UNCLEAR, reason=error.why)
        return SliceView(state=SliceState.READY if hosts else SliceState.ABSENT, hosts=hosts)

    def end(self, name: str, token: str = "") -> None:
        self._notes.drop(check_slice_name(name))

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        return tuple(
            OwnedSlice(
                name=note.name,
                cluster=note.cluster,
                installation=owner,
                state=SliceState.READY,
                created=note.created,
                where=self.name,
            )
            for note in self._notes.all()
            if installation in ("", (owner := read_owner(note.labels).installation))
        )


def _resolve(machines: Sequence[OwnHost], name: str, known_hosts: str) -> tuple[HostAddress, ...]:
    """Return the addresses of all machines; ssh is run for several at a time. Raises UserError."""
    one = partial(own_address, name=name, known_hosts=Path(known_hosts))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [pool.submit(one, host, rank=rank) for rank, host in enumerate(machines)]
        return tuple(future.result() for future in found)


def _refuse_unusable_keys(addresses: Sequence[HostAddress], keys: SliceKeys) -> None:
    """Raise UserError for a host that no key can log in to, before anything is recorded about it."""
    from orchestrator.remote.identities import KeyRing

    ring = KeyRing()
    for address in addresses:
        if ring.has_identity(address):
            continue
        raise UserError(
            f"no SSH key for host {address.host}",
            "none is named in `hosts` or ~/.ssh/config, no agent has one, and ~/.ssh has no usual one",
            f"ssh-copy-id -i {quote(f'{keys.identity_file}.pub')} {quote(address.host)}"
            f"   and `key: {keys.identity_file}` in `hosts`",
        )


def _addresses(note: _Note) -> tuple[HostAddress, ...]:
    """Return where the machines are now: a corrected ~/.ssh/config takes effect at once. Raises UserError."""
    if note.addresses and note.stamp == config_stamp():
        return hosts_from_json(note.addresses)
    return _resolve(note.hosts, note.name, note.known_hosts)
