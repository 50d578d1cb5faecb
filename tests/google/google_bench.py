"""A provider as commands have it, one after another, against the small TPU API on this computer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from google_cases import PROJECT, candidate
from google_fake import Fake

from orchestrator.providers.google import client, session
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.slices import SliceKeys, SliceSpec, Spot

PLACE = f"projects/{PROJECT}/locations/us-west4-a"
NODE = f"{PLACE}/nodes/demo-1"
QUEUED = f"{PLACE}/queuedResources/demo-1"
CREATE_NODE = "POST /v2/" + PLACE + "/nodes"
SPOT = candidate(market=Spot())


@dataclass(slots=True)
class Bench:
    fake: Fake
    state: Path
    keys: SliceKeys
    clock: float = 1_763_632_800.0  # 2025-11-20T10:00:00Z

    def provider(self) -> TpuProvider:
        """As another command would have it."""
        return TpuProvider(client.open_api(session.open_session()), self.state / "google", lambda: self.clock)

    def keyed(self, of: SliceSpec) -> SliceKeys:
        hosts = of.candidate.hosts
        return replace(
            self.keys, host_private=self.keys.host_private[:hosts], host_public=self.keys.host_public[:hosts]
        )

    def created(self, of: SliceSpec) -> TpuProvider:
        provider = self.provider()
        provider.create(of, self.keyed(of))
        return provider

    def ready(self, of: SliceSpec) -> TpuProvider:
        """Created, up, and its hosts show our keys."""
        provider = self.created(of)
        self.fake.make_ready(of.name)
        per_slice = of.candidate.hosts // max(1, len(self.fake.nodes))
        for at, path in enumerate(self.fake.nodes):
            mine = self.keys.host_public[at * per_slice : (at + 1) * per_slice]
            self.fake.keys[path] = [line.split()[1] for line in mine]
        return provider
