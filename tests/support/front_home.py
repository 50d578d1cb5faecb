"""The engine with a vendor's real provider: every call over a socket, to a front of the simulator that tests own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from support.simulated import QUICK, PointedHands, Points, SimHome, stored_records

from orchestrator.hosts import HostAddress
from orchestrator.paths import load_paths
from orchestrator.providers.protocol import Provider
from orchestrator.providers.records import Records
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import Access
from orchestrator.simulator.calls import Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.scenario import Durations, Zone
from orchestrator.simulator.world import host_alias
from orchestrator.slices import Candidate, SliceKeys, SliceSpec
from orchestrator.values import Text


class Server(Protocol):
    """A running server of a front."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Front:
    """A front of the simulator, and the provider that is tested against it.

    Attributes:
        name: In the ids of tests.
        provider_name: In orch.
        variable: The environment variable that leads orch to the server.
        serve: Start the server of a simulated cloud.
        provider: Return the real provider, by the server's address and the folder of orch's state.
        to_zones: Return zones of these names.
        zones: Two zones, of which the home's candidates are in the first by default.
        home: The engine's home.
        connect: Return what the homes of one server share, by its address.
        left: Return what the cloud keeps beside its slices.
        durations: Of the cloud of the crash matrix.
    """

    name: str
    provider_name: str
    variable: str
    serve: Callable[[Access], AbstractContextManager[Server]]
    provider: Callable[[str, Path], Provider]
    to_zones: Callable[..., tuple[Zone, ...]]
    zones: tuple[str, str]
    home: type[FrontHome]
    connect: Callable[[str], Any] = lambda url: None
    left: Callable[[SimulatedCloud], list[str]] = lambda cloud: []
    durations: Durations = QUICK


@dataclass
class FrontHome(SimHome, ABC):
    """A home whose cloud is asked over sockets.

    Attributes:
        url: Of the server that serves `access`.
        client: See Front.connect.
        kind: The provider's class, for a sabotaged one.
        records: The kind of the provider's records.
        shows_addresses: Whether the front shows the simulated hosts' own addresses. Then an old one leads nowhere.
    """

    url: str = ""
    client: Any = None
    kind: type[Any] = field(kw_only=True)
    records: ClassVar[str]
    shows_addresses: ClassVar[bool] = True

    @abstractmethod
    def opened(self, records: Records | Path, points: Points) -> Provider:
        """Return the provider, which passes these points."""

    @staticmethod
    @abstractmethod
    def with_keys(look: Look) -> Look:
        """Return the look with the keys that the front gives to its hosts."""

    def hang_up(self) -> None:
        """Close connections that are kept: a child that was forked must not speak on those of its parent."""

    def orphan_candidate(self, name: str) -> Candidate:
        """Return what an orphan is made of: every second one is on spot."""
        return self.candidate(spot=name.endswith("2"))

    def provider(self) -> Provider:
        return self.opened(stored_records(self.records), self.points)

    def hands(self, hosts: tuple[HostAddress, ...], _pins: object) -> HostOperations:
        return KeyedHands(self, hosts)

    def orphan(self, name: str, installation: str) -> None:
        """Made by another orch of this installation, whose folder is lost."""
        elsewhere = self.opened(load_paths().state.parent.parent / "lost", Points())
        spec = owned_spec(name, f"token-{name}", self.orphan_candidate(name), cluster="lost", installation=installation)
        elsewhere.create(spec, make_slice_keys(spec.candidate.hosts))


class KeyedHands(PointedHands):
    """Simulated hands that know a host by the key it shows, as SSH does."""

    def __init__(self, home: FrontHome, hosts: tuple[HostAddress, ...]) -> None:
        super().__init__(home.access, _as_the_cloud_calls_them(home, hosts), home.points)
        self._given = hosts

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._given


def _as_the_cloud_calls_them(home: FrontHome, hosts: tuple[HostAddress, ...]) -> tuple[HostAddress, ...]:
    """Where our key answers, the cloud's own address and name of that host; else of a host that it lacks."""
    known: dict[str | None, tuple[str, str]] = {}
    with home.access.open() as cloud:
        for resource in cloud.host_world().living():
            if not resource.foreign:
                keys = home.with_keys(describe_resource(resource)).extra["keys"]["host_public"]
                named = ((host.address, host_alias(resource, host.rank)) for host in resource.hosts)
                known.update(zip(keys, named, strict=True))

    def found(host: HostAddress) -> HostAddress:
        address, alias = known.get(host.host_key, (host.internal_ip, host.alias))
        if home.shows_addresses and address != host.internal_ip:
            address, alias = host.internal_ip, host.alias
        return replace(host, host=address, alias=alias, jump=None)

    return tuple(map(found, hosts))


def make_slice_keys(hosts: int) -> SliceKeys:
    """Return new keys for a slice that no one logs in to."""
    private, public = zip(*(make_host_key() for _ in range(hosts)), strict=True)
    return SliceKeys(
        user_public=make_host_key()[1],
        identity_file="/nowhere",
        known_hosts="/nowhere",
        host_private=private,
        host_public=public,
    )


def owned_spec(name: str, token: str, candidate: Candidate, *, cluster: str, installation: str) -> SliceSpec:
    """Return what an orch of this installation asks for."""
    given = {"orch-installation": installation, "orch-cluster": cluster, "orch-intent": token}
    labels = tuple((key, Text.of(value)) for key, value in given.items())
    return SliceSpec(cluster=cluster, name=name, token=Text.of(token), candidate=candidate, labels=labels)
