"""The record of a slice of the TPU API; see providers/core/record.py. Its files are below <state>/google."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.private_files import write_whole
from orchestrator.providers.core.record import KEPT_SECONDS, Phase, SliceRecord, SliceRecords
from orchestrator.providers.google.choices import Api, Kind

__all__ = ["KEPT_SECONDS", "Phase", "Record", "Records"]

_CHECKED = ".checked"  # a file that only this computer has


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(SliceRecord):
    """A slice of TPU VMs.

    Attributes:
        project: Its Google project.
        kind: Whether a node or a queued resource was requested.
        slices: How many nodes it is.
        hosts_per_slice: Hosts of each node.
        internal_ips: Whether its hosts have no external address.
        operation: Path of the long-running operation of the create; "" where its answer was lost.
        api: The version that was asked.
        valid_seconds: How long a queued request may wait; 0 for a node.
        run_seconds: How long its machines may run; 0 for no limit.
    """

    project: str
    kind: Kind
    slices: int
    hosts_per_slice: int
    internal_ips: bool
    operation: str = ""
    api: Api = "v2"
    valid_seconds: int = 0
    run_seconds: int = 0

    @property
    def hosts(self) -> int:
        return self.slices * self.hosts_per_slice

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def queued_path(self) -> str:
        return f"{self.parent}/queuedResources/{self.name}"

    @property
    def node_paths(self) -> tuple[str, ...]:
        """The paths in slice order. Of a multislice request they are <prefix>-0, <prefix>-1 ... (TPU API v2)."""
        if self.slices == 1:
            return (f"{self.parent}/nodes/{self.name}",)
        return tuple(f"{self.parent}/nodes/{self.name}-{at}" for at in range(self.slices))


class Records(SliceRecords[Record]):
    """The records of the TPU API."""

    every = "the records of Google's TPUs"
    kind = Record
    endings = (_CHECKED,)

    @staticmethod
    def place_of(record: Record) -> tuple[str, ...]:
        return (record.project, record.zone)

    def is_checked(self, record: Record) -> bool:
        """Return whether the hosts of this slice reported our keys."""
        file = self.local_file(record.name, _CHECKED)
        return file.exists() and file.read_text(encoding="utf-8") == record.token

    def check(self, record: Record) -> None:
        """Note that they did."""
        write_whole(self.local_file(record.name, _CHECKED), record.token)

    def uncheck(self, name: str) -> None:
        """Note that the hosts of a slice are to be asked again."""
        self.local_file(name, _CHECKED).unlink(missing_ok=True)
