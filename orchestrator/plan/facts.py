"""What decide() may know beside the wish and the world: how each provider words its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.slices import Candidate, Request, SliceSpec


class Requests(Protocol):
    """The pure half of a provider, as far as decisions need it (see providers/protocol.py)."""

    def create_request(self, spec: SliceSpec) -> Request: ...

    def end_request(self, name: str, candidate: Candidate) -> Request: ...

    def stop_request(self, name: str, candidate: Candidate) -> Request: ...

    def start_request(self, name: str, candidate: Candidate) -> Request: ...


@dataclass(frozen=True, slots=True)
class Facts:
    requests: Mapping[str, Requests]  # by provider name
