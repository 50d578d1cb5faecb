"""A simulated project behind its guard, and orch beside it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from support.zones import EVERY_TYPE

from orch_fronts.google.api import TpuApi
from orch_fronts.google.compute.front import PREFIX as COMPUTE
from orch_fronts.google.compute.front import ComputeFront
from orch_fronts.google.grants import Bucket, Grants, Limit
from orch_fronts.google.iam import Guard
from orch_fronts.google.server import Front, TpuServer
from orch_fronts.google.services import project_fronts
from orchestrator.providers.google import session
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario, Zone

PROJECT = "project-of-tests"
ZONE, OTHER = "us-west4-a", "us-central1-a"
LIMITS = (
    Limit("tpu-v5s-litepod", 64),
    Limit("tpu-v5s-litepod", 128, ZONE),
    Limit("tpu-v5s-litepod-preemptible", 256, ZONE),
    Limit("tpu-v5s-litepod-serving", 8),
    Limit("tpu-v6e-preemptible", 8, "us-central1"),
)
GOOD = Grants(limits=LIMITS, buckets={"runs": Bucket("US-WEST4"), "closed": Bucket("EU", frozenset())})


@dataclass(frozen=True)
class Project:
    server: TpuServer
    guard: Guard
    clock: ManualClock


@contextmanager
def simulated(
    monkeypatch: pytest.MonkeyPatch, grants: Grants = GOOD, over: Callable[[Front], Front] = lambda tpu: tpu
) -> Generator[Project]:
    """The environment of this process leads to it while the block lasts. over: what stands before the TPU API."""
    clock = ManualClock()
    zones = (Zone(ZONE, "us-west4"), Zone(OTHER, "us-central1"))
    access = InMemory(Scenario(zones=zones, pools=EVERY_TYPE, durations=Durations(jitter=0.0)), clock)
    guard = Guard(grants)
    fronts = {prefix: guard.around(front) for prefix, front in project_fronts(PROJECT, grants).items()}
    fronts[COMPUTE] = guard.around(ComputeFront(access, NoBodies(), PROJECT))
    fronts["/"] = guard.around(over(TpuApi(access, NoBodies(), PROJECT)))
    with TpuServer(access, project=PROJECT, fronts=fronts) as server:
        monkeypatch.setenv(session.ENDPOINT, server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
        yield Project(server, guard, clock)
