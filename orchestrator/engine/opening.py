"""Opening the store that the environment names."""

from __future__ import annotations

import os

from orchestrator.engine.world import World
from orchestrator.paths import Paths
from orchestrator.store.location import store_location
from orchestrator.store.store import Store


def open_store(where: Paths, world: World, doing: str = "") -> Store:
    """ORCH_STORE, or this user's own file. Times are written by the world's clock. doing: the cause in its events."""
    return Store(store_location(os.environ, where), world.clock.now, doing=doing)
