"""The provider of slices on Compute Engine, with what only it has: recovery, and the names of its instances."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.providers.core.journal import open_journals
from orchestrator.providers.core.recovery import RecoverableProvider
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.driver import ComputeDriver
from orchestrator.providers.google.compute.hosts import names_by_rank
from orchestrator.providers.google.compute.record import Record, Records
from orchestrator.providers.google.compute.recovering import ComputeRecovery
from orchestrator.providers.google.session import Session
from orchestrator.providers.records import FolderRecords
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import OwnedSlice


def open_compute(
    session: Session, records: RecordPlace, now: Callable[[], float] = time.time, *, complete: bool = False
) -> ComputeProvider:
    """Return the provider. Sends nothing."""
    return ComputeProvider(ComputeApi(session), records, now, complete=complete)


class ComputeProvider(RecoverableProvider[Record]):
    """See providers/protocol.py. The arguments are those of ComputeDriver."""

    def __init__(
        self,
        api: ComputeApi,
        records: RecordPlace | Path,
        now: Callable[[], float] = time.time,
        *,
        complete: bool = False,
    ) -> None:
        place = FolderRecords(records) if isinstance(records, Path) else records
        kept = Records(place)
        self._api = api
        self._compute = ComputeDriver(api, kept, now, complete=complete)
        super().__init__(self._compute, kept, open_journals(place), now)

    def projects(self) -> set[str]:
        """Return the projects in which something was made from here."""
        return self._compute.list_used_projects()

    def instance_names(self, name: str) -> tuple[str, ...]:
        """Return what Compute Engine calls each host, in rank order."""
        record = self._records.read(name)
        return names_by_rank(record) if record is not None else ()

    def _recover(self, found: OwnedSlice) -> ComputeRecovery:
        return ComputeRecovery(self._api, self._api.project, found)
