"""What this computer knows of a slice on EC2: where it is, whose it is, what was made for it. One small file per slice.

Written before the first request is sent, so that a slice is found again after a crash at any point without a search. It
holds paths of private keys, never a key. A slice that waits for its capacity block has in `known` the request that is
sent when the block begins, without host keys: whoever sends it makes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.records import RecordFiles

KEPT_SECONDS = 7 * 24 * 3600.0  # how long a slice that is gone is still looked up where it was
_WAITING_REQUEST = "waiting request"  # in `known`, where an older orch passes over it
_TUPLES = ("host_public", "instances", "known")


class Phase(StrEnum):
    ASKED = "asked"  # whether EC2 acted is not known
    WAITING = "waiting"  # all is made but the instances: their capacity block has not begun, or they are on their way
    ACCEPTED = "accepted"
    ENDING = "ending"
    REFUSED = "refused"  # EC2 said no, and nothing is left of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """asked, changed, seen, begins, ends: seconds since the epoch.

    market: "", "spot", "reservation" or "block"; reservation: its id, for the last two. way: see access.Way.
    known: what reads of its create have answered, so that a repeated one asks for the same. instances: their ids, in
    rank order. asked: when a request that makes something was last sent. seen: when it was READY first, 0 = never.
    associated: its Elastic IPs lead to their hosts. power: "stop" or "start", whichever was asked for last.
    begins: when the capacity block does that it waits for, else 0. ends: when the capacity block does, else 0.
    empty: since when EC2 shows nothing of it, else 0.
    """

    name: str
    token: str
    region: str
    profile: str
    zone: str
    hosts: int
    market: str
    reservation: str
    way: str
    jump: str
    user: str
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    phase: Phase = Phase.ASKED
    known: tuple[tuple[str, str], ...] = ()
    instances: tuple[str, ...] = ()
    associated: bool = False
    seen: float = 0.0
    power: str = ""
    begins: float = 0.0
    ends: float = 0.0
    empty: float = 0.0


class Records(RecordFiles[Record]):
    """The files below <state>/aws."""

    every = "the records of EC2"

    @staticmethod
    def parsed(fields: dict[str, Any]) -> Record:
        fields |= {key: tuple(fields[key]) for key in _TUPLES} | {"phase": Phase(fields["phase"])}
        fields["known"] = tuple((str(what), str(value)) for what, value in fields["known"])
        return Record(**fields)

    def write(self, record: Record, phase: Phase | None = None, **changes: Any) -> Record:
        """The record as it was written. changes: of other fields."""
        return self.put(replace(record, **{"phase": phase or record.phase, "changed": time.time(), **changes}))

    def profiles(self) -> set[str]:
        """Of the accounts in which something may live that was asked for here."""
        return {record.profile for record in self.all() if record.phase is not Phase.REFUSED}

    def keep_request(self, record: Record, params: Mapping[str, Any]) -> Record:
        """Keep what is sent when the block begins. It must hold no private key."""
        return self.write(self.drop_request(record), known=(*record.known, (_WAITING_REQUEST, json.dumps(params))))

    def request(self, record: Record) -> dict[str, Any]:
        """Raises CloudError when it is not there, or not whole."""
        kept = dict(record.known).get(_WAITING_REQUEST)
        try:
            # An older orch kept it in a file, with the hosts' private keys.
            text = kept if kept is not None else self._request_file(record).read_text(encoding="utf-8")
            return cast(dict[str, Any], json.loads(text))
        except (OSError, ValueError) as error:
            raise CloudError(f"the request of '{record.name}' cannot be read", str(error), "orch down") from error

    def drop_request(self, record: Record) -> Record:
        """The record without it."""
        self._request_file(record).unlink(missing_ok=True)
        return replace(record, known=tuple(pair for pair in record.known if pair[0] != _WAITING_REQUEST))

    def sweep(self) -> None:
        """Drop what ended, or was refused, long ago."""
        for record in self.all():
            if record.phase in (Phase.ENDING, Phase.REFUSED) and time.time() - record.changed > KEPT_SECONDS:
                self.drop_request(record)
                self.drop(record.name)

    def _request_file(self, record: Record) -> Path:
        return self.local_file(record.name, ".request")
