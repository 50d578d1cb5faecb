"""Hosts behind a simulated slice: addresses only, or real sshd hosts on this computer.

Bodies follow the cloud: `sync_hosts` receives all resources that were ever made and makes the hosts match them. It may
be called again after a crash at any point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from orchestrator.hosts import HostAddress
from orchestrator.private_files import write_whole
from orchestrator.providers.local.layout import SlicePaths
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.providers.local.sshd import account, find_sshd
from orchestrator.remote.host_folder import JOB_FILES, list_host_folders
from orchestrator.simulator.calls import Look
from orchestrator.simulator.state import Phase
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Text

PORT = 22
USER = "orch"
_LABEL = "orch-installation"
_OURS = "simulated"


class Bodies(Protocol):
    """Hosts behind the resources of a simulated cloud."""

    def check(self) -> None:
        """Check that this computer supports these hosts.

        Raises:
            UserError: It does not, for example because sshd is missing.
        """
        ...

    def sync_hosts(self, looks: Sequence[Look]) -> None:
        """Create, stop, kill and end hosts so that they match these resources.

        Raises:
            OrchError: A host could not be changed.
        """
        ...

    def view(self, look: Look) -> SliceView:
        """Return the view of a READY resource: READY with its hosts, or the state of the bodies if that differs."""
        ...

    def steps(self, look: Look) -> Mapping[int, int]:
        """Return the steps that the programs of a READY resource have reached, by rank, where they report them."""
        ...

    def take_power_requests(self, look: Look) -> Mapping[int, str]:
        """Return what hosts of a READY resource request of the cloud, by rank, and forget it: see power.py."""
        ...


class NoBodies:
    """Addresses without hosts, for SimulatedHands."""

    def check(self) -> None:
        return

    def sync_hosts(self, looks: Sequence[Look]) -> None:
        del looks

    def view(self, look: Look) -> SliceView:
        keys = keys_of(look)
        hosts = tuple(
            HostAddress(
                rank=host.rank,
                alias=host.alias,
                host=host.address,
                port=PORT,
                user=USER,
                identity_file=Path(keys.identity_file),
                known_hosts=Path(keys.known_hosts),
                internal_ip=host.address,
                host_key=keys.host_public[host.rank] if keys.host_public else None,
            )
            for host in look.hosts
        )
        return SliceView(state=SliceState.READY, hosts=hosts)

    def steps(self, look: Look) -> Mapping[int, int]:
        """Return nothing: simulated programs reach their steps in the cloud itself."""
        del look
        return {}

    def take_power_requests(self, look: Look) -> Mapping[int, str]:
        """Return nothing: no timer runs on these hosts."""
        del look
        return {}


class LocalBodies:
    """Local slices in `<folder>/local`, each created when its resource becomes ready.

    A host that the cloud lost, or that was preempted, has its processes ended hard. A second call with an open lock
    waits; call `sync_hosts` inside `Access.open`, so that two processes do not act on one slice from different states.
    """

    def __init__(self, folder: Path) -> None:
        self.local = LocalProvider(folder)
        self._folder = folder.absolute()

    def check(self) -> None:
        find_sshd()
        account()

    def sync_hosts(self, looks: Sequence[Look]) -> None:
        existing = {owned.name for owned in self.local.owned(_OURS)}
        for look in looks:
            name = body_name(look)
            if look.phase is Phase.READY:
                self._up(look, name)
            elif name not in existing:
                continue
            elif look.phase in (Phase.STOPPING, Phase.STOPPED, Phase.MAINTENANCE, Phase.STARTING):
                self._down(name)
            elif look.phase in (Phase.ENDING, Phase.ABSENT):
                self.local.end(name)
            elif look.phase in (Phase.PREEMPTED, Phase.FAILED):
                self._break(name, range(look.size))
        for name in existing - {body_name(look) for look in looks}:
            self.local.end(name)  # of a cloud that no longer exists

    def view(self, look: Look) -> SliceView:
        """Return the local provider's view, which shows also hosts that died by themselves.

        The owner of the body is this cloud; the owner of the slice is in the slice's own labels.
        """
        return replace(self.local.observe(body_name(look)), installation="")

    def steps(self, look: Look) -> Mapping[int, int]:
        """Read the furthest step of each host from the programs' heartbeat files (docs/limits.md)."""
        paths = SlicePaths(self._folder / "local" / body_name(look))
        found: dict[int, int] = {}
        for rank in range(look.size):
            files = paths.host(rank).home.glob(f"{JOB_FILES}/heartbeat*")
            furthest = max(map(read_heartbeat_step, files), default=0)
            if furthest:
                found[rank] = furthest
        return found

    def take_power_requests(self, look: Look) -> Mapping[int, str]:
        """Read the files that the timers' commands write (templates/limits/simulated.sh.j2)."""
        paths = SlicePaths(self._folder / "local" / body_name(look))
        found: dict[int, str] = {}
        for rank in range(look.size):
            for folder in list_host_folders(paths.host(rank).home):
                file = folder / "power-request"
                if file.is_file():
                    found[rank] = file.read_text(encoding="utf-8").strip()
                    file.unlink()
        return found

    def _up(self, look: Look, name: str) -> None:
        state = self.local.observe(name).state
        if state in (SliceState.ABSENT, SliceState.CREATING):
            candidate = Candidate(
                provider="local",
                accelerator=look.accelerator,
                hosts=len(look.hosts),
                chips_per_host=0,
                market=OnDemand(),
            )
            labels = ((_LABEL, Text.of(_OURS)),)
            spec = SliceSpec(cluster=look.name, name=name, token=Text.of(name), candidate=candidate, labels=labels)
            self.local.create(spec, keys_of(look))
        elif state in (SliceState.STOPPED, SliceState.STARTING, SliceState.STOPPING):
            self.local.start(name)
        self._let_in(look, name)
        dead = [host.rank for host in look.hosts if not host.up]
        if dead:
            self._break(name, dead)

    def _let_in(self, look: Look, name: str) -> None:
        """Write the resource's current SSH keys to its hosts, not only those of its start."""
        paths, keys = SlicePaths(self._folder / "local" / name), keys_of(look).user_public.strip() + "\n"
        for rank in range(look.size):
            file = paths.host(rank).authorized_keys
            if file.is_file() and file.read_text(encoding="utf-8") != keys:
                write_whole(file, keys)

    def _down(self, name: str) -> None:
        if self.local.observe(name).state in (SliceState.READY, SliceState.STOPPING):
            self.local.stop(name)

    def _break(self, name: str, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if self.local.observe(name).state in (SliceState.READY, SliceState.PREEMPTED):
                self.local.preempt(name, rank)


def body_name(look: Look) -> str:
    """Return a name of at most 63 characters that no other resource's body ever has."""
    unique = f"{look.uid}-{int(look.created)}"
    return f"{look.name[: 62 - len(unique)]}-{unique}"


def read_heartbeat_step(file: Path) -> int:
    """Return the step in a heartbeat file, or 0 for another or a deleted file."""
    try:
        heartbeat: Any = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(heartbeat, int):  # a program of the user's may write the bare step
            return heartbeat
        return int(heartbeat["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def keys_of(look: Look) -> SliceKeys:
    """Return the SSH keys that came with the create request; empty for a foreign resource."""
    kept = dict(look.extra.get("keys", {}))
    return SliceKeys(
        user_public=str(kept.get("user_public", "")),
        identity_file=str(kept.get("identity_file", "")),
        known_hosts=str(kept.get("known_hosts", "")),
        host_private=tuple(kept.get("host_private", ())),
        host_public=tuple(kept.get("host_public", ())),
    )
