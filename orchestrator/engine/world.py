"""Everything outside of this process that the engine touches, but for its store and its own files.

The engine runs unchanged in the real world, in a simulated one, and in a rehearsal, which has real hosts in a simulated
cloud.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.clock import Clock, RealClock
from orchestrator.hosts import HostAddress
from orchestrator.paths import Paths
from orchestrator.providers.protocol import Provider
from orchestrator.providers.registry import open_provider
from orchestrator.remote.hands import Hands, SshHands


@dataclass(frozen=True, slots=True)
class World:
    """provider: by name. hands: for one set of hosts.

    live: logs are followed by a thread beside the loop. False where time is simulated: then only the loop moves it.
    """

    provider: Callable[[str], Provider]
    hands: Callable[[tuple[HostAddress, ...]], Hands]
    clock: Clock
    live: bool = True


def real_world(where: Paths) -> World:
    return World(lambda name: open_provider(name, where.state), SshHands, RealClock())
