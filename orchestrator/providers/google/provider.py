"""The provider "gcp", and its half that serves the TPU API: slices of TPU VMs, with what only Google has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.clock import RealClock, ServerClock
from orchestrator.providers.core.journal import open_journals
from orchestrator.providers.core.recovery import RecoverableProvider
from orchestrator.providers.google.both import COMPUTE, TPU, Both
from orchestrator.providers.google.client import TpuApi, open_api
from orchestrator.providers.google.gated import GATES, Gated
from orchestrator.providers.google.record import Record, Records
from orchestrator.providers.google.recovering import TpuRecovery
from orchestrator.providers.google.session import Session, open_session
from orchestrator.providers.google.tpu import TpuDriver
from orchestrator.providers.records import FolderRecords, RecordSource
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import OwnedSlice

if TYPE_CHECKING:
    from orchestrator.providers.google.compute.provider import ComputeProvider


def open_provider(state: Path, clock: ServerClock | None = None, records: RecordSource = FolderRecords) -> Gated:
    """The provider "gcp".

    Raises AccessError without credentials, UserError without the library or for a wrong ORCH_GCP_ENDPOINT.
    """
    clock = clock or RealClock()
    session = open_session(clock.learn)

    @cache
    def opened(project: str, account: str, *, complete: bool) -> Gated:
        return _open(
            replace(session, project=project).impersonate(account),
            lambda kind: records(state.absolute() / kind),
            clock.now,
            partial(opened, complete=True),
            partial(opened, complete=complete),
            complete=complete,
        )

    return opened(session.project, "", complete=False)


def _open(
    session: Session,
    place: Callable[[str], RecordPlace],
    now: Callable[[], float],
    at: Callable[[str, str], Gated],
    in_project: Callable[[str, str], Gated],
    *,
    complete: bool,
) -> Gated:
    """complete: it searches all of the session's project, and nothing else; see protocol.HasPlaces."""

    def compute() -> ComputeProvider:
        from orchestrator.providers.google.compute.provider import open_compute

        return open_compute(session, place(COMPUTE), now, complete=complete)

    tpu = TpuProvider(open_api(session), place(TPU), now, complete=complete)
    both = Both(place, tpu, compute, complete=complete)
    return Gated(both, session, place(GATES), now, at=at, in_project=in_project, complete=complete)


class TpuProvider(RecoverableProvider[Record]):
    """See providers/protocol.py. The arguments are those of TpuDriver."""

    def __init__(
        self, api: TpuApi, records: RecordPlace | Path, now: Callable[[], float] = time.time, *, complete: bool = False
    ) -> None:
        place = FolderRecords(records) if isinstance(records, Path) else records
        kept = Records(place)
        self._tpu = TpuDriver(api, kept, now, complete=complete)
        super().__init__(self._tpu, kept, open_journals(place), now)

    def projects(self) -> set[str]:
        """Return those in which something was made from here."""
        return self._tpu.projects()

    def instance_names(self, name: str) -> tuple[str, ...]:
        """Return what Compute Engine calls each host, in rank order; "" for one that has not reported it."""
        record = self._records.read(name)
        with self._explained("look at", name, record=record):
            paths = record.node_paths if record is not None else ()
            return tuple(one for path in paths for one in self._tpu.api.instance_names(path))

    def _recover(self, found: OwnedSlice) -> TpuRecovery:
        return TpuRecovery(self._tpu.api, self._tpu.api.project, found)
