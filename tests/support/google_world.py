"""The engine with the real provider of Google's TPUs: every call over a socket, to a simulated cloud that tests own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from requests.adapters import HTTPAdapter
from support.google_cloud import OTHER, ZONE, google_api, tpu_candidate
from support.simulated import PointedCalls, PointedHands, Points, SimHome, stored_records

from orchestrator.hosts import HostAddress
from orchestrator.paths import load_paths
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.protocol import Provider
from orchestrator.providers.records import Records
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import Access
from orchestrator.simulator.google.keys import with_keys
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.state import Resource
from orchestrator.simulator.world import host_alias
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, Spot
from orchestrator.values import Text

ACCELERATORS = {1: "v4-8", 2: "v4-16"}  # by the number of hosts


class PointedRequests(HTTPAdapter):
    """A point before each request leaves, and one when its answer has come and no client has read it."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self._points = points

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        *_, kind, last = str(request.path_url).partition("?")[0].split("/")
        reads = request.method == "GET" or last.endswith(":getGuestAttributes")
        what = "GET" if reads else f"{request.method} {_subject(kind, last)}"
        self._points.here(f"sending {what}")
        answer = super().send(request, *args, **kwargs)
        self._points.here(f"answered {what}")
        return answer


def _subject(kind: str, last: str) -> str:
    """nodes/c-1:stop -> stop, nodes -> nodes, nodes/c-1 -> nodes."""
    verb = last.partition(":")[2]
    return verb or (last if last in ("nodes", "queuedResources") else kind)


class PointedGoogle(PointedCalls, TpuProvider):
    """The real provider of the TPU API, with points."""


class GoogleHands(PointedHands):
    """Simulated hands that know a host by the key it shows, as SSH does."""

    def __init__(self, access: Access, hosts: tuple[HostAddress, ...], points: Points) -> None:
        super().__init__(access, _as_the_cloud_calls_them(access, hosts), points)
        self._given = hosts

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._given


def _as_the_cloud_calls_them(access: Access, hosts: tuple[HostAddress, ...]) -> tuple[HostAddress, ...]:
    """Where our key answers, the cloud's own name of that host; else a name that no host of the cloud has."""
    with access.open() as cloud:
        named = {key: name for one in cloud.host_world().living() if not one.foreign for key, name in _names(one)}
    return tuple(
        replace(host, host=host.internal_ip, alias=named.get((host.internal_ip, host.host_key), host.alias))
        for host in hosts
    )


def _names(resource: Resource) -> list[tuple[tuple[str, str | None], str]]:
    keys = with_keys(describe_resource(resource)).extra["keys"]["host_public"]
    return [((host.address, keys[host.rank]), host_alias(resource, host.rank)) for host in resource.hosts]


@dataclass
class GoogleCloudHome(SimHome, ABC):
    """What is the same for both APIs of TPUs.

    Attributes:
        url: Of the TpuServer that serves `access`.
        records: The kind of the provider's records.
    """

    url: str = ""
    provider_name: ClassVar[str] = "gcp"
    records: ClassVar[str]

    @abstractmethod
    def opened(self, records: Records | Path, points: Points) -> Provider:
        """Return the provider, which passes these points."""

    def orphan_candidate(self, name: str) -> Candidate:
        """Return what an orphan is made of: every second one is on spot, in the TPU API a queued resource."""
        return self.candidate(spot=name.endswith("2"))

    def provider(self) -> Provider:
        return self.opened(stored_records(self.records), self.points)

    def hands(self, hosts: tuple[HostAddress, ...], _pins: object) -> HostOperations:
        return GoogleHands(self.access, hosts, self.points)

    def orphan(self, name: str, installation: str) -> None:
        """Made by another orch of this installation, whose folder is lost."""
        token = Text.of(f"token-{name}")
        given = {"orch-installation": installation, "orch-cluster": "lost", "orch-intent": token.reveal()}
        labels = tuple((key, Text.of(value)) for key, value in given.items())
        candidate = self.orphan_candidate(name)
        private, public = zip(*(make_host_key() for _ in range(candidate.hosts)), strict=True)
        keys = SliceKeys(
            user_public=make_host_key()[1],
            identity_file="/nowhere",
            known_hosts="/nowhere",
            host_private=private,
            host_public=public,
        )
        elsewhere = self.opened(load_paths().state.parent.parent / "lost", Points())
        elsewhere.create(SliceSpec(cluster="lost", name=name, token=token, candidate=candidate, labels=labels), keys)


@dataclass
class GoogleHome(GoogleCloudHome):
    """kind: of the provider, for a sabotaged one."""

    kind: type[PointedGoogle] = PointedGoogle
    records: ClassVar[str] = "google"

    def opened(self, records: Records | Path, points: Points) -> PointedGoogle:
        api: Any = google_api(self.url)
        api._client.transport._session.mount("http://", PointedRequests(points))
        provider = self.kind(api, records, self.clock.now)
        provider.points = points
        return provider

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        market = Spot() if spot else OnDemand()
        return tpu_candidate(ACCELERATORS[hosts], market, zone=OTHER if other_zone else ZONE)
