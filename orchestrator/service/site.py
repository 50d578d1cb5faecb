"""What the handlers of the service read: the store, the buckets of runs, and the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cloud_access import CloudAccess
from orchestrator.cloud_identities.role import name_caller
from orchestrator.documents.curves import CurveReader
from orchestrator.documents.kept_spending import KeptSpending
from orchestrator.engine.operations.output_copies import OutputCopies
from orchestrator.engine.services import real_services
from orchestrator.engine.state.identities import find_access
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader as open_recorded
from orchestrator.paths import load_paths
from orchestrator.service.host_board import HostBoard
from orchestrator.service.long_sums import LongSums
from orchestrator.service.member_rules import MemberRules
from orchestrator.storage.bucket import Bucket
from orchestrator.store.failures import StoreError
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One served store.

    Attributes:
        location: The store.
        project: The project whose clusters are found by their names.
        access: How buckets are reached.
        now: The time, in epoch seconds.
        wake_engine: Makes sure that an engine works, which carries out what was asked.
        member_rules: What tasks of members may use of this computer.
        files: The bucket in which all servers of the team keep files that members send; "" where each keeps its own.
        copies: The output that is copied from hosts, for readers.
        hosts: What the engine of this process observes of hosts.
        curves: The points of runs that were read before.
        spending: The sums of what deleted clusters have cost.
        long_sums: Those that are as long as history.
    """

    location: Location
    project: str
    access: CloudAccess
    now: Callable[[], float] = time.time
    wake_engine: Callable[[], None] = lambda: None
    member_rules: MemberRules = field(default_factory=MemberRules)
    files: str = ""
    copies: OutputCopies = field(default_factory=lambda: OutputCopies(open_recorded))
    hosts: HostBoard = field(default_factory=HostBoard)
    curves: CurveReader = field(default_factory=CurveReader)
    spending: KeptSpending = field(default_factory=KeptSpending)
    long_sums: LongSums = field(default_factory=LongSums)

    def open_reader(self, project: str = "", only_project: str = "") -> Reader:
        """Open the store for reading. Use it as a context manager.

        Args:
            project: In which clusters are found by their names; "" for that of the site.
            only_project: The only one whose records are seen; "" for every project.

        Raises:
            StoreError: Its file, which the server had made or found, is not there any more.
        """
        if isinstance(self.location, Path) and not self.location.exists():
            raise StoreError(
                f"the store {self.location} was removed while it was served",
                "the machines on its record may still run, and cost money",
                "end this server, then: orch store restore URI   or: orch recover",
            )
        return open_reader_at(self.location, project or self.project, only_project)

    def open_store(self, doing: str, project: str = "") -> Store:
        """Open the store for a change. Use it as a context manager.

        Args:
            doing: The cause that its events name.
            project: Of the command; "" for that of the site.
        """
        where = load_paths()
        return open_store(where, real_services(where), doing, project or self.project)

    def open_bucket(self, uri: str, project: str) -> Bucket:
        """Return a bucket of a project's run. Sends nothing."""
        with self.open_reader() as reader:
            caller = name_caller(reader.installation() or "", reader.member)
            return Bucket.open(uri, find_access(reader, self.access, caller, project=project))
