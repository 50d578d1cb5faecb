"""The processes of a run as one team: how they meet and agree, without any framework.

Small values travel as JSON over TCP through rank 0, which listens at the coordinator's address. Engines make their own
groups for gradients; `meeting_place` gives them an address for it.
"""

from __future__ import annotations

from typing import Any, Protocol

from trainer.environment import World


class Team(Protocol):
    """Calls must come in the same order on every rank; each side channel has an order of its own."""

    @property
    def world(self) -> World: ...

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order. value: JSON-able and small. Raises PeerError."""
        ...

    def side_channel(self, timeout: float) -> Team:
        """The same ranks with an order of their own, for one background thread. timeout: seconds for each call."""
        ...

    def meeting_place(self) -> str:
        """host:port, free on rank 0's machine and reachable by all: where an engine's processes may meet."""
        ...

    def close(self) -> None: ...
