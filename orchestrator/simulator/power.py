"""What hosts of a simulated cloud do to themselves when a limit of theirs is reached: switch off, stop or delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from orchestrator.simulator.calls import ApiError, Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.state import Phase


class HasPower(Protocol):
    """The hosts behind the resources."""

    def take_power_requests(self, look: Look) -> Mapping[int, str]:
        """Return what hosts request of the cloud, by rank, and forget it."""
        ...


def apply_power_requests(cloud: SimulatedCloud, bodies: HasPower) -> None:
    """Stop or delete the resources whose hosts request it, as the service account of a real machine would.

    A request that the cloud refuses is not repeated here: the timer on the host gives its command again.
    """
    for look in cloud.live():
        if look.phase is not Phase.READY:
            continue
        verbs = set(bodies.take_power_requests(look).values())
        with suppress(ApiError):
            if "delete" in verbs:
                cloud.end(look.name, look.zone)
            elif verbs:
                cloud.stop(look.name, look.zone)
