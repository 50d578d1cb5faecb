"""The third input of decide(): how each provider builds its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.slices import Candidate, Request, SliceSpec


class RequestBuilder(Protocol):
    """The pure half of a provider, as far as decisions need it (see providers/protocol.py)."""

    def create_request(self, spec: SliceSpec) -> Request:
        """Return the request that creates a slice."""
        ...

    def end_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that ends a slice."""
        ...

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that stops the machines of a slice."""
        ...

    def start_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that starts the machines of a slice again."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """The request builders, by provider name."""

    requests: Mapping[str, RequestBuilder]
