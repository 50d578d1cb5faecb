"""The front of Compute Engine, and the engine with the real provider of its TPUs against it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from google.auth.credentials import AnonymousCredentials
from support.google_cloud import tpu_candidate
from support.simulated import PointedCalls, Points
from support.tpu_front import TPU_API, GoogleHome

from orch_fronts.google.compute.visit import left
from orch_fronts.google.server import PROJECT
from orchestrator.providers.google.compute.api import ComputeApi, place_of
from orchestrator.providers.google.compute.provider import ComputeProvider
from orchestrator.providers.google.session import PREFIXES, Session
from orchestrator.providers.records import Records
from orchestrator.slices import Candidate, Market, OnDemand, Spot

ZONE, OTHER = "us-east5-b", "us-central1-c"
SEVERAL, GROUP = 2, 4  # hosts of what is several instances, and of what is a managed instance group
ACCELERATORS = {1: ("v6e-8", 1), SEVERAL: ("v6e-8", SEVERAL), GROUP: ("v6e-16", 1)}  # and how many, by hosts
_READS = ("listManagedInstances",)  # which are sent as POST


def compute_client(url: str) -> Any:
    """Return Google's client for the server at this address. Building it takes 0.2 s, so that one serves many homes."""
    return Session(AnonymousCredentials(), PROJECT, url).service("compute", "v1")


@dataclass(frozen=True)
class PointedSession(Session):
    """A point before each request leaves, and one when its answer has come and no client has read it.

    Attributes:
        points: That are passed.
        client: See compute_client.
    """

    points: Points = field(default_factory=Points)
    client: Any = None

    def service(self, name: str, version: str, *, timeout: float = 60.0) -> Any:
        return self.client

    def http(self, timeout: float) -> Any:
        http = super().http(timeout)
        send = http.request

        def request(uri: str, method: str = "GET", *args: Any, **options: Any) -> Any:
            what = request_name(method, uri)
            self.points.here(f"sending {what}")
            answer = send(uri, method, *args, **options)
            if what != "GET":  # a kill after a read leaves what one before it leaves
                self.points.here(f"answered {what}")
            return answer

        http.request = request
        return http


def request_name(method: str, target: str) -> str:
    """Return what a request changes, as "POST instances" or "POST stop"; "GET" for one that changes nothing."""
    if method == "GET":
        return "GET"
    place = place_of(urlsplit(target).path.removeprefix(PREFIXES["compute"]))
    return "GET" if place.verb in _READS else f"{method} {place.verb or place.kind}"


class PointedCompute(PointedCalls, ComputeProvider):
    """The real provider of Compute Engine, with points."""


@dataclass
class ComputeHome(GoogleHome):
    """client: see compute_client."""

    kind: type[PointedCompute] = PointedCompute
    records: ClassVar[str] = "google-compute"

    def opened(self, records: Records | Path, points: Points) -> PointedCompute:
        session = PointedSession(AnonymousCredentials(), PROJECT, self.url, points=points, client=self.client)
        provider = self.kind(ComputeApi(session), records, self.clock.now)
        provider.points = points
        return provider

    def candidate(self, hosts: int = GROUP, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        market, zone = Spot() if spot else OnDemand(), OTHER if other_zone else ZONE
        return compute_candidate(hosts, market, zone=zone)

    def orphan_candidate(self, name: str) -> Candidate:
        """Return a group for the first orphan, and an instance on spot for the second."""
        return self.candidate(1, spot=True) if name.endswith("2") else self.candidate()


def compute_candidate(hosts: int = GROUP, market: Market | None = None, *, zone: str = ZONE) -> Candidate:
    accelerator, slices = ACCELERATORS[hosts]
    return tpu_candidate(accelerator, market, zone=zone, slices=slices, api="compute")


def compute_provider(url: str, state: Path) -> ComputeProvider:
    """url: of a TpuServer. state: the folder in which orch keeps its own state."""
    return ComputeProvider(ComputeApi(Session(AnonymousCredentials(), PROJECT, url)), state / "google-compute")


COMPUTE = replace(
    TPU_API,
    name="Compute Engine",
    provider=compute_provider,
    zones=(ZONE, OTHER),
    home=ComputeHome,
    connect=compute_client,
    left=left,
)
