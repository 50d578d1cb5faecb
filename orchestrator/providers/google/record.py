"""What this computer knows of a slice it asked for: where it is, whose it is, its keys. One small file per slice.

Written before the request is sent, so that a slice is found again after a crash at any point without a search. It holds
paths of private keys, never a key. Google remains the truth about whether the slice exists.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from orchestrator.providers.google.choices import Api, Kind
from orchestrator.providers.records import RecordFiles

KEPT_SECONDS = 7 * 24 * 3600.0  # how long a slice that is gone is still looked up where it was


class Phase(StrEnum):
    ASKED = "asked"  # whether Google acted is not known
    ACCEPTED = "accepted"
    ENDING = "ending"
    REFUSED = "refused"  # Google said no: nothing was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """operation: path of the long-running operation of the create. asked, changed: seconds since the epoch.

    api: the version that was asked. valid_seconds: how long a queued request may wait; run_seconds: how long its
    machines may run; 0 = without end, and in records of older versions.

    Of what was adopted: node and queued are the ids that its maker gave it, made says when the queued resource was
    made (it carries no label of ours), and user is the account to log in with. "" else.
    """

    name: str
    token: str
    project: str
    zone: str
    kind: Kind
    slices: int
    hosts_per_slice: int
    internal_ips: bool
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    phase: Phase = Phase.ASKED
    operation: str = ""
    api: Api = "v2"
    valid_seconds: int = 0
    run_seconds: int = 0
    node: str = ""
    queued: str = ""
    made: str = ""
    user: str = ""

    @property
    def adopted(self) -> bool:
        return bool(self.node)

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def queued_path(self) -> str:
        return f"{self.parent}/queuedResources/{self.queued or self.name}"

    @property
    def node_paths(self) -> tuple[str, ...]:
        """In slice order. Of a multislice request they are <prefix>-0, <prefix>-1 ... (TPU API v2, reference)."""
        if self.slices == 1:
            return (f"{self.parent}/nodes/{self.node or self.name}",)
        return tuple(f"{self.parent}/nodes/{self.name}-{at}" for at in range(self.slices))


class Records(RecordFiles[Record]):
    """The files below <state>/google."""

    every = "the records of Google's TPUs"

    @staticmethod
    def parsed(fields: dict[str, Any]) -> Record:
        fields |= {"phase": Phase(fields["phase"]), "host_public": tuple(fields["host_public"])}
        return Record(**fields)

    def write(self, record: Record, phase: Phase, operation: str = "") -> Record:
        """The record as it was written."""
        return self.put(replace(record, phase=phase, operation=operation or record.operation, changed=time.time()))

    def places(self) -> set[tuple[str, str]]:
        """(project, zone) in which something may live that was asked for here."""
        return {(record.project, record.zone) for record in self.all() if record.phase is not Phase.REFUSED}

    def is_checked(self, name: str) -> bool:
        """Whether the hosts of this slice were seen to have our keys."""
        return self.local_file(name, ".checked").exists()

    def check(self, name: str) -> None:
        self.local_file(name, ".checked").touch(mode=0o600)

    def uncheck(self, name: str) -> None:
        self.local_file(name, ".checked").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Drop what ended, or was refused, long ago."""
        for record in self.all():
            if record.phase in (Phase.ENDING, Phase.REFUSED) and time.time() - record.changed > KEPT_SECONDS:
                self.uncheck(record.name)
                self.drop(record.name)
