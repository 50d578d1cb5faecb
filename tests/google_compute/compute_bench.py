"""The provider for Compute Engine over real sockets, against the simulated cloud; as another command would have it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from google_cases import INSTALLATION, TOKEN, candidate, keys

from orch_fronts.google.compute.front import PREFIX, ComputeFront
from orch_fronts.google.compute.visit import left
from orch_fronts.google.grants import Grants
from orch_fronts.google.server import TpuServer
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.provider import ComputeProvider
from orchestrator.providers.google.session import ENDPOINT, open_session
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Durations, Fault, Scenario, Zone
from orchestrator.slices import Candidate, Market, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Text

PROJECT = "project-of-tests"
ZONE = "us-east5-b"
ZONES = (Zone(ZONE, "us-east5"), Zone("us-central1-c", "us-central1"))
EVEN = Durations(jitter=0.0)  # create 40 s, end 20 s, stop 20 s, start 30 s, one move in the queue 5 s
KEYS = keys(8)


@dataclass
class Bench:
    """The clock stands still until a test moves it."""

    server: TpuServer
    access: InMemory
    clock: ManualClock
    state: Path

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    @cached_property
    def api(self) -> ComputeApi:
        """One for all: it knows nothing of slices, and reading Google's description of the service takes its time."""
        return ComputeApi(open_session(), wait_seconds=2.0)

    def provider(self) -> ComputeProvider:
        return ComputeProvider(self.api, self.state / "google-compute", self.clock.now)

    def create(self, of: SliceSpec) -> ComputeProvider:
        provider = self.provider()
        provider.create(of, keyed(of, self.state))
        return provider

    def drop_journals(self) -> None:
        """Leave the records as an orch that keeps no journal would."""
        for path in (self.state / "google-compute-journal").iterdir():
            path.unlink()

    def ready(self, of: SliceSpec) -> SliceView:
        provider = self.create(of)
        self.clock.advance(41)
        view = provider.observe(of.name)
        assert view.state is SliceState.READY, view
        return view

    def gone(self, name: str = "demo-1") -> None:
        """Ended by as many calls as it takes, until it is said to be absent."""
        for _ in range(6):
            self.provider().end(name)
            self.clock.advance(100)
            if self.provider().observe(name).state is SliceState.ABSENT:
                return
        raise AssertionError(self.provider().observe(name))

    def leftovers(self) -> list[str]:
        """All that lives and all that is kept."""
        return [look.name for look in self.cloud.live()] + left(self.cloud)

    def posted(self, kind: str) -> list[str]:
        """The inserts of a kind, by their paths and queries."""
        return [path for method, path, _ in self.server.requests if method == "POST" and f"/{kind}?" in path]


@contextmanager
def bench(
    folder: Path,
    patch: pytest.MonkeyPatch,
    *faults: Fault,
    bodies: Bodies | None = None,
    cut: bool = True,
    beyond: Iterable[str] = (),
    **fields: Any,
) -> Generator[Bench]:
    """fields: of the Scenario. cut: a call without an answer breaks its connection. beyond: permissions beside those
    of the documented role."""
    clock = fields.pop("clock", None) or ManualClock()
    scenario = Scenario(faults=faults, durations=fields.pop("durations", EVEN), **({"zones": ZONES} | fields))
    access = InMemory(scenario, clock)
    bodies = bodies or NoBodies()
    front = ComputeFront(access, bodies, PROJECT)
    grants = Grants(permissions=frozenset({*Grants().permissions, *beyond}))
    with TpuServer(access, bodies, project=PROJECT, cut=cut, fronts={PREFIX: front}, grants=grants) as server:
        patch.setenv(ENDPOINT, server.url)
        patch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield Bench(server, access, clock, folder)


def wanted(
    accelerator: str = "v6e-16", market: Market | None = None, slices: int = 1, zone: str = ZONE, **details: str
) -> Candidate:
    return candidate(accelerator, market, slices, zone, api="compute", **details)


def spec(of: Candidate | None = None, name: str = "demo-1", token: str = TOKEN, cluster: str = "demo") -> SliceSpec:
    labels = (
        ("orch-installation", Text.of(INSTALLATION)),
        ("orch-cluster", Text.of(cluster)),
        ("orch-intent", Text.of(token)),
    )
    return SliceSpec(cluster=cluster, name=name, token=Text.of(token), candidate=of or wanted(), labels=labels)


def keyed(of: SliceSpec, folder: Path) -> SliceKeys:
    hosts = of.candidate.hosts
    return replace(
        KEYS,
        identity_file=str(folder / "id_ed25519"),
        known_hosts=str(folder / "known_hosts"),
        host_private=(KEYS.host_private * hosts)[:hosts],
        host_public=(KEYS.host_public * hosts)[:hosts],
    )
