"""The real provider of Compute Engine, asked to go to a server on this computer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from google.auth.credentials import AnonymousCredentials
from support.google_cloud import tpu_candidate

from orch_fronts.google.server import PROJECT
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.provider import ComputeProvider
from orchestrator.providers.google.session import Session
from orchestrator.slices import Candidate

ZONE = "us-east5-b"


@cache
def compute_api(url: str) -> ComputeApi:
    """Return one for all providers of a server: reading Google's description of the service takes its time."""
    return ComputeApi(Session(AnonymousCredentials(), PROJECT, url))


def compute_provider(url: str, state: Path) -> ComputeProvider:
    """Return the provider whose state is in this folder, for a TpuServer at this address."""
    return ComputeProvider(compute_api(url), state / "google-compute")


def compute_candidate(accelerator: str, *, slices: int = 1) -> Candidate:
    """Return machines of Compute Engine."""
    return tpu_candidate(accelerator, zone=ZONE, slices=slices, api="compute")
