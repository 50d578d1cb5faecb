"""The interface to all processes of a run: how they exchange small values, without any framework.

Small values travel as JSON over TCP through rank 0, which listens at the coordinator's address. Engines make their own
groups for gradients; `rendezvous_address` gives them an address for it.
"""

from __future__ import annotations

from typing import Any, Protocol

from trainer.environment import World


class Team(Protocol):
    """The ranks of a run; calls must come in the same order on every rank, separately for each side channel."""

    @property
    def world(self) -> World: ...

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, in rank order.

        Args:
            value: JSON-able and small.

        Raises:
            PeerError: Another rank was lost.
        """
        ...

    def side_channel(self, timeout: float) -> Team:
        """Return the same ranks with a separate order of calls, for one background thread.

        Args:
            timeout: Seconds for each call.
        """
        ...

    def rendezvous_address(self) -> str:
        """Return host:port, free on rank 0's machine and reachable by all: where an engine's processes may meet."""
        ...

    def close(self) -> None: ...
