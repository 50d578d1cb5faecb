"""The record of a slice: where it is, whose it is, its keys, and how far its create or its end has come.

It is written before the first request is sent, so that a slice is found after a crash at any point without a search. It
holds paths of private keys, never a key. The cloud remains the truth about what exists.
"""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, cast

from orchestrator.providers.records import RecordFiles

KEPT_SECONDS = 7 * 24 * 3600.0  # how long a slice that ended is still looked up where it was


class Phase(StrEnum):
    """How far the create or the end of a slice has come."""

    ASKED = "asked"  # whether the cloud acted is not known
    WAITING = "waiting"  # everything is made but the machines, whose time has not come
    ACCEPTED = "accepted"
    ENDING = "ending"
    REFUSED = "refused"  # the cloud refused, and nothing is left of it


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRecord:
    """The record of a slice that all clouds have; a driver's record adds fields.

    Attributes:
        name: Of the slice.
        token: Makes a repeated create harmless, and marks everything that belongs to the slice.
        zone: The zone of its machines; "" where the cloud chooses.
        identity_file: Path of our private key.
        known_hosts: File of the pinned host keys.
        host_public: One public host key per rank.
        asked: Epoch seconds at which a request that makes something was last sent.
        changed: Epoch seconds of the last change of the record.
        phase: How far it has come.
        empty: Epoch seconds since when a cloud whose listings lag shows nothing of the slice; else 0.
    """

    name: str
    token: str
    zone: str
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    phase: Phase = Phase.ASKED
    empty: float = 0.0


R = TypeVar("R", bound=SliceRecord)


def name_host(record: SliceRecord, rank: int) -> str:
    """Return the name under which a host's key is pinned: that of no other slice, ever."""
    return f"{record.name}-{hashlib.sha256(record.token.encode()).hexdigest()[:8]}-{rank}"


class SliceRecords(RecordFiles[R]):
    """The records of one driver.

    Attributes:
        kind: The driver's type of record.
        tuples: Its fields that are tuples.
        endings: Of files that only this computer keeps beside a record.
    """

    kind: ClassVar[type[SliceRecord]]
    tuples: ClassVar[tuple[str, ...]] = ("host_public",)
    endings: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> R:
        typed = {key: _as_tuple(fields[key]) for key in cls.tuples if key in fields}
        return cls.kind(**{**fields, **typed, "phase": Phase(fields["phase"])})  # type: ignore[return-value]  # R is kind

    @staticmethod
    @abstractmethod
    def place_of(record: R) -> tuple[str, ...]:
        """Return where the machines of a record are: the account's place first, such as a profile or a project."""

    def write(self, record: R, phase: Phase | None = None, **changes: Any) -> R:
        """Write a record with changes, and return it."""
        values: Mapping[str, Any] = {"phase": phase or record.phase, "changed": time.time(), **changes}
        return self.put(replace(record, **values))

    def places(self) -> set[tuple[str, ...]]:
        """Return the places in which something may exist that was requested here."""
        return {self.place_of(record) for record in self.all() if record.phase is not Phase.REFUSED}

    def forget(self, record: R) -> None:
        """Delete a record and the files beside it."""
        for ending in self.endings:
            self.local_file(record.name, ending).unlink(missing_ok=True)
        self.drop(record.name)

    def list_expired(self) -> list[R]:
        """Return the records of what ended, or was refused, long ago."""
        over = (Phase.ENDING, Phase.REFUSED)
        return [one for one in self.all() if one.phase in over and time.time() - one.changed > KEPT_SECONDS]


def _as_tuple(value: object) -> Any:
    """Return JSON with tuples in the place of lists."""
    return tuple(map(_as_tuple, cast(list[object], value))) if isinstance(value, list) else value
