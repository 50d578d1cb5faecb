"""Opening the store for writing."""

from __future__ import annotations

import os

from orchestrator.clock import SteadyClock
from orchestrator.engine.services import Services
from orchestrator.engine.state.keys import identify_computer
from orchestrator.engine.state.unrecorded_ends import replay_unrecorded_ends
from orchestrator.paths import Paths
from orchestrator.project import read_project
from orchestrator.store.location import store_location
from orchestrator.store.store import Store
from orchestrator.store.version import SCHEMA_VERSION, creation_error


def open_store(where: Paths, services: Services, doing: str = "", project: str = "") -> Store:
    """Open the store at ORCH_STORE, or this user's own file. A shared one gets this computer's public key.

    What was ended while the store could not be written is recorded first.

    Args:
        where: The folders of this installation.
        services: Its clock gives the times that are written.
        doing: The cause that its events name.
        project: The project of the command; "" for that of the environment.
    """
    if isinstance(services.clock, SteadyClock):
        services.clock.keep()
    project = project or read_project(os.environ)
    store = Store(store_location(os.environ, where), services.clock.now, doing=doing, project=project)
    if not store.is_file:
        try:
            computer, key = identify_computer(where)
            store.register_computer(computer.id, computer.host, store.user, key)
        except BaseException:
            store.close()
            raise
    try:
        replay_unrecorded_ends(store, where)
    except BaseException:
        store.close()
        raise
    return store


def refuse_if_removed(store: Store, where: Paths) -> None:
    """Raise AccessError when this computer was removed from the team after it opened the store."""
    if not store.is_file:
        store.refuse_removed_computer(identify_computer(where)[0].id)


def refuse_creation(store: Store) -> None:
    """Raise StoreError for a store of a newer version: this orch may stop and end what is in it, not add to it."""
    if store.version > SCHEMA_VERSION:
        raise creation_error(store.place, store.version)
