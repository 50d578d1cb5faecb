"""Opening the store for writing."""

from __future__ import annotations

import os

from orchestrator.clock import SteadyClock
from orchestrator.engine.services import Services
from orchestrator.engine.state.keys import identify_computer
from orchestrator.paths import Paths
from orchestrator.store.location import store_location
from orchestrator.store.store import Store


def open_store(where: Paths, services: Services, doing: str = "") -> Store:
    """Open the store at ORCH_STORE, or this user's own file. A shared one gets this computer's public key.

    Args:
        where: The folders of this installation.
        services: Its clock gives the times that are written.
        doing: The cause that its events name.
    """
    if isinstance(services.clock, SteadyClock):
        services.clock.keep()
    store = Store(store_location(os.environ, where), services.clock.now, doing=doing)
    if not store.is_file:
        try:
            computer, key = identify_computer(where)
            store.register_computer(computer.id, computer.host, store.user, key)
        except BaseException:
            store.close()
            raise
    return store
