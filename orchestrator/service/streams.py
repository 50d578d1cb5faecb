"""Requests that a server answers later, and has to end before it can shut down."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.service.event_stream import EventHub
from orchestrator.service.output_waits import OutputWaits


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The requests of an application that are not answered immediately."""

    events: EventHub
    output: OutputWaits

    def close(self) -> None:
        """End them; their clients come back to the next server."""
        self.events.close()
        self.output.close()
