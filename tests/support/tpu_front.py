"""The front of Google's TPU API, and the engine with the real provider against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from requests.adapters import HTTPAdapter
from support.front_home import Front, FrontHome
from support.google_cloud import OTHER, ZONE, google_api, google_provider, tpu_candidate, tpu_zones
from support.simulated import QUICK, PointedCalls, Points

from orch_fronts.google import keys
from orch_fronts.google.server import TpuServer
from orchestrator.cloud_access import GOOGLE_API
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.records import Records
from orchestrator.simulator.calls import Look
from orchestrator.slices import Candidate, OnDemand, Spot

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


@dataclass
class GoogleHome(FrontHome):
    """What is the same for both APIs of TPUs."""

    provider_name: ClassVar[str] = "gcp"
    with_keys: ClassVar[Callable[[Look], Look]] = staticmethod(keys.with_keys)


@dataclass
class TpuHome(GoogleHome):
    """On spot it has queued resources."""

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


TPU_API = Front(
    name="TPU API",
    provider_name="gcp",
    variable=GOOGLE_API,
    serve=TpuServer,
    provider=google_provider,
    to_zones=tpu_zones,
    zones=(ZONE, OTHER),
    home=TpuHome,
    durations=replace(QUICK, queue=0.2),
)
