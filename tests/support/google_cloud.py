"""The real provider of Google's TPUs, asked to go to a server on this computer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from google.auth.credentials import AnonymousCredentials

from orch_fronts.google.server import PROJECT
from orchestrator.providers.google.client import TpuApi, open_api
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.rented import find_rented
from orchestrator.providers.google.session import Session
from orchestrator.simulator.scenario import Zone
from orchestrator.slices import Candidate, Market, OnDemand

ZONE, OTHER = "us-central2-b", "us-central1-a"


def google_api(url: str) -> TpuApi:
    return open_api(Session(AnonymousCredentials(), PROJECT, url))


def google_provider(url: str, state: Path, now: Callable[[], float] = time.time) -> TpuProvider:
    """url: of a TpuServer. state: the folder in which orch keeps its own state."""
    return TpuProvider(google_api(url), state / "google", now)


def tpu_candidate(
    accelerator: str, market: Market | None = None, *, zone: str = ZONE, slices: int = 1, **details: str
) -> Candidate:
    machine = find_rented(accelerator)
    assert machine is not None
    return Candidate(
        provider="gcp",
        accelerator=machine.name,
        hosts=machine.hosts * slices,
        chips_per_host=machine.chips_per_host,
        market=market or OnDemand(),
        region=zone.rpartition("-")[0],
        zone=zone,
        details=tuple(details.items()),
    )


def tpu_zones(*names: str) -> tuple[Zone, ...]:
    return tuple(Zone(name, name.rpartition("-")[0]) for name in names)
