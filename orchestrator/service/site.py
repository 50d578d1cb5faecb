"""What the handlers of the service read: the store, the buckets of runs, and the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.cloud_access import CloudAccess
from orchestrator.service.host_board import HostBoard
from orchestrator.storage.bucket import Bucket
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.summaries.curves import CurveReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One served store.

    Attributes:
        location: The store.
        project: The project whose clusters are found by their names.
        access: How buckets are reached.
        now: The time, in epoch seconds.
        hosts: What the engine of this process observes of hosts.
        curves: The points of runs that were read before.
    """

    location: Location
    project: str
    access: CloudAccess
    now: Callable[[], float] = time.time
    hosts: HostBoard = field(default_factory=HostBoard)
    curves: CurveReader = field(default_factory=CurveReader)

    def open_reader(self) -> Reader:
        """Open the store for reading. Use it as a context manager."""
        return open_reader_at(self.location, self.project)

    def open_bucket(self, uri: str) -> Bucket:
        """Return a bucket. Sends nothing."""
        return Bucket.open(uri, self.access)
