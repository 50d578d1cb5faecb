"""The hosts provider: a slice is a line in our own notes about machines that are the user's.

READY at once, never ended by us. Host keys are accepted on first contact and kept under the slice's own name.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from orchestrator.clock import ServerClock
from orchestrator.errors import CloudError, ConflictError, UserError
from orchestrator.hosts import HostAddress
from orchestrator.providers.files import write_whole
from orchestrator.providers.hosts.machines import OwnHost, from_details, parse_address
from orchestrator.slices import OwnedSlice, SliceKeys, SliceSpec, SliceState, SliceView

INSTALLATION_LABEL = "orch-installation"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")  # the order of ssh_config(5), IdentityFile


def open_provider(state: Path, _clock: ServerClock | None = None) -> HostsProvider:
    return HostsProvider(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """hosts: with user and key filled in, as they were when the slice was made. created: epoch seconds."""

    name: str
    cluster: str
    token: str
    created: float
    labels: dict[str, str]
    known_hosts: str
    hosts: tuple[OwnHost, ...]


class HostsProvider:
    """See providers/protocol.py. Cannot stop or preempt."""

    name = "hosts"

    def __init__(self, state: Path) -> None:
        self._root = state.absolute() / "hosts"

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Raises UserError for a key that is not there, ConflictError when the name is taken."""
        machines = tuple(_completed(host, keys) for host in from_details(spec.candidate))
        note = _Note(
            name=spec.name,
            cluster=spec.cluster,
            token=spec.token.reveal(),
            created=time.time(),
            labels={key: value.reveal() for key, value in spec.labels},
            known_hosts=keys.known_hosts,
            hosts=machines,
        )
        for rank in range(len(machines)):
            _address(note, rank)  # a jump host that cannot be read is told now
        path = self._path(spec.name)
        found = _read(path)
        if found is not None and found.token == note.token:
            return
        if found is not None:
            raise ConflictError(
                f"hosts are recorded as '{spec.name}' already",
                "for another request",
                f"orch down {found.cluster}   (the machines stay as they are)",
            )
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, json.dumps(asdict(note), indent=1) + "\n")
        except OSError as error:
            raise CloudError(f"cannot record the hosts of '{spec.name}'", str(error), f"see {path.parent}") from error

    def observe(self, name: str, token: str = "") -> SliceView:
        try:
            note = _read(self._path(name))
        except CloudError as error:
            return SliceView(state=SliceState.UNCLEAR, reason=error.why)
        if note is None:
            return SliceView(state=SliceState.ABSENT)
        return SliceView(state=SliceState.READY, hosts=tuple(_address(note, rank) for rank in range(len(note.hosts))))

    def end(self, name: str, token: str = "") -> None:
        self._path(name).unlink(missing_ok=True)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        notes = [_read(path) for path in self._notes()]
        return tuple(
            OwnedSlice(
                name=note.name,
                cluster=note.cluster,
                installation=installation,
                state=SliceState.READY,
                created=note.created,
                where=self.name,
            )
            for note in notes
            if note is not None and note.labels.get(INSTALLATION_LABEL) == installation
        )

    def _notes(self) -> list[Path]:
        try:  # not glob(): it takes a folder that cannot be read for an empty one
            return sorted(path for path in self._root.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError("the records of hosts cannot be listed", str(error), f"ls -l {self._root}") from error

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UserError(
                f"'{name}' cannot name a slice",
                "allowed: up to 63 lower-case letters, digits and inner hyphens",
                "take another name: -c NAME",
            )
        return self._root / f"{name}.json"


def _completed(host: OwnHost, keys: SliceKeys) -> OwnHost:
    user = host.user or pwd.getpwuid(os.getuid()).pw_name
    return replace(host, user=user, key=str(_key(host, keys)))


def _key(host: OwnHost, keys: SliceKeys) -> Path:
    """The private key to use. Raises UserError when there is none."""
    if host.key:
        path = Path(host.key).expanduser().absolute()
        if not os.access(path, os.R_OK):
            raise UserError(f"cannot read the SSH key {host.key} of host {host.host}", "", f"ls -l {path}")
        return path
    usual = [Path.home() / ".ssh" / name for name in _USUAL_KEYS]
    for path in usual:
        if os.access(path, os.R_OK):
            return path
    raise UserError(
        f"no SSH key for host {host.host}",
        f"none is named in `hosts`, and {usual[0].parent} has none of {', '.join(_USUAL_KEYS)}",
        f"ssh-copy-id -i {keys.identity_file}.pub {host.host}   then name `key: {keys.identity_file}` in `hosts`",
    )


def _address(note: _Note, rank: int) -> HostAddress:
    machine = note.hosts[rank]
    return HostAddress(
        rank=rank,
        alias=f"{note.name}-{rank}",
        host=machine.host,
        port=machine.port,
        user=machine.user,
        identity_file=Path(machine.key),
        known_hosts=Path(note.known_hosts),
        internal_ip=machine.internal_ip or machine.host,
        jump=_jump(note, machine, [hop for hop in machine.jump.split(",") if hop.strip()]),
    )


def _jump(note: _Note, machine: OwnHost, hops: Sequence[str]) -> HostAddress | None:
    """The last hop, reached through those before it. Hosts behind the same jump host get the same value."""
    if not hops:
        return None
    hop = parse_address(hops[-1])
    return HostAddress(
        rank=0,
        alias=f"{note.name}-jump-{_plain(hop)}",
        host=hop.host,
        port=hop.port,
        user=hop.user or machine.user,
        identity_file=Path(machine.key),
        known_hosts=Path(note.known_hosts),
        internal_ip=hop.host,
        jump=_jump(note, machine, hops[:-1]),
    )


def _plain(hop: OwnHost) -> str:
    """Jump hosts have no rank to be named by."""
    return re.sub(r"[^a-z0-9]+", "-", f"{hop.host}-{hop.port}".lower())


def _read(path: Path) -> _Note | None:
    """None when there is none. Raises CloudError when it cannot be read."""
    try:
        fields = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
        typed: dict[str, Any] = {**fields, "hosts": tuple(OwnHost(**host) for host in fields["hosts"])}
        return _Note(**typed)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CloudError(f"the record of '{path.stem}' cannot be read", str(error), f"see {path}") from error
