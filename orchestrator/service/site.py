"""What the handlers of the service read: the store, the buckets of runs, and the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cloud_access import CloudAccess
from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.paths import load_paths
from orchestrator.service.host_board import HostBoard
from orchestrator.storage.bucket import Bucket
from orchestrator.store.failures import StoreError
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord
from orchestrator.summaries.curves import CurveReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One served store.

    Attributes:
        location: The store.
        project: The project whose clusters are found by their names.
        access: How buckets are reached.
        now: The time, in epoch seconds.
        wake_engine: Makes sure that an engine works, which carries out what was asked.
        hosts: What the engine of this process observes of hosts.
        curves: The points of runs that were read before.
    """

    location: Location
    project: str
    access: CloudAccess
    now: Callable[[], float] = time.time
    wake_engine: Callable[[], None] = lambda: None
    hosts: HostBoard = field(default_factory=HostBoard)
    curves: CurveReader = field(default_factory=CurveReader)

    def open_reader(self) -> Reader:
        """Open the store for reading. Use it as a context manager.

        Raises:
            StoreError: Its file, which the server had made or found, is not there any more.
        """
        if isinstance(self.location, Path) and not self.location.exists():
            raise StoreError(
                f"the store {self.location} was removed while it was served",
                "the machines on its record may still run, and cost money",
                "end this server, then: orch store restore URI   or: orch recover",
            )
        return open_reader_at(self.location, self.project)

    def find_token(self, digest: str) -> TokenRecord | None:
        """Return the token of a digest, or None."""
        with self.open_reader() as store:
            return store.find_token(digest)

    def open_store(self, doing: str) -> Store:
        """Open the store for a change; `doing` is the cause that its events name. Use it as a context manager."""
        where = load_paths()
        return open_store(where, real_services(where), doing, self.project)

    def open_bucket(self, uri: str) -> Bucket:
        """Return a bucket. Sends nothing."""
        return Bucket.open(uri, self.access)
