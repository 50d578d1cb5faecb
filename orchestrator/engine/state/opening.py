"""Opening the store for writing."""

from __future__ import annotations

import os
from binascii import a2b_base64

from orchestrator.clock import SteadyClock
from orchestrator.engine.services import Services
from orchestrator.engine.state.keys import ENGINE_KEY, identify_computer, make_user_key
from orchestrator.engine.state.unrecorded_ends import replay_unrecorded_ends
from orchestrator.errors import ConflictError
from orchestrator.hosts import fingerprint
from orchestrator.paths import Paths
from orchestrator.project import read_project
from orchestrator.store.location import store_location
from orchestrator.store.store import Store
from orchestrator.store.version import SCHEMA_VERSION, creation_error


def open_store(where: Paths, services: Services, doing: str = "", project: str = "") -> Store:
    """Open the store at ORCH_STORE, or this user's own file.

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
    try:
        if not store.is_file:
            make_user_key(where)  # hosts that another server made admit it, if it is the shared one
        replay_unrecorded_ends(store, where)
    except BaseException:
        store.close()
        raise
    return store


def refuse_other_key(store: Store, where: Paths) -> None:
    """Raise ConflictError where other servers of a shared store enter hosts with another key than this computer's."""
    if store.is_file:
        return
    _, key = identify_computer(where)
    kept = store.keep_servers_key(key)
    if kept != key:
        shown = [fingerprint(a2b_base64(one.split()[1])) for one in (key, kept)]
        raise ConflictError(
            f"this computer has another SSH key than the servers of the store {store.place}",
            f"its key is {shown[0]}; the hosts of what is open admit {shown[1]}",
            f"mount that key here: export {ENGINE_KEY}=FILE   (docs/team.md)\nor, if it is lost: orch down --all",
        )


def refuse_creation(store: Store) -> None:
    """Raise StoreError for a store of a newer version: this orch may stop and end what is in it, not add to it."""
    if store.version > SCHEMA_VERSION:
        raise creation_error(store.place, store.version)
