"""The record of a slice on EC2; see providers/core/record.py.

A slice that waits for its Capacity Block has in `known` the request that is sent when the block begins, without host
keys: whoever sends it makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.core.record import SliceRecord, SliceRecords

_WAITING_REQUEST = "waiting request"  # in `known`, where an older orch passes over it
_OLD_REQUEST = ".request"  # the file in which an older orch kept it, with the private keys of the hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(SliceRecord):
    """A slice on EC2. Times are seconds since the epoch.

    Attributes:
        market: "", "spot", "reservation" or "block".
        reservation: Its id, for the last two.
        way: See access.Way.
        known: What the reads of an older orch answered, and the request that waits.
        instances: Their ids, in rank order.
        associated: Whether its Elastic IPs lead to their hosts.
        seen: When it was READY first; 0 for never.
        power: "stop" or "start", whichever was requested last.
        begins: Of the Capacity Block that it waits for, else 0.
        ends: Of its Capacity Block, else 0.
        role_arn: The role that made it; "" for the profile's own credentials.
        external_id: What the trust policy of that role asks for.
    """

    region: str
    profile: str
    hosts: int
    market: str
    reservation: str
    way: str
    jump: str
    user: str
    known: tuple[tuple[str, str], ...] = ()
    instances: tuple[str, ...] = ()
    associated: bool = False
    seen: float = 0.0
    power: str = ""
    begins: float = 0.0
    ends: float = 0.0
    role_arn: str = ""
    external_id: str = ""

    @property
    def principal(self) -> Principal:
        """As whom it was made, and is observed and ended."""
        return Principal(profile=self.profile, role_arn=self.role_arn, external_id=self.external_id)

    @property
    def known_without_request(self) -> tuple[tuple[str, str], ...]:
        """`known` without the request that waits."""
        return tuple(pair for pair in self.known if pair[0] != _WAITING_REQUEST)

    def known_with(self, params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """`known` with the request that is sent when the block begins. It must hold no private key."""
        return (*self.known_without_request, (_WAITING_REQUEST, json.dumps(params)))


class Records(SliceRecords[Record]):
    """The records of EC2."""

    every = "the records of EC2"
    kind = Record
    tuples = ("host_public", "instances", "known")
    endings = (_OLD_REQUEST,)
    sparse = (*SliceRecords.sparse, "role_arn", "external_id")

    @staticmethod
    def place_of(record: Record) -> tuple[str, ...]:
        return (str(record.principal), record.region)

    def read_request(self, record: Record) -> dict[str, Any]:
        """Return the parameters of the request that waits.

        Raises:
            CloudError: They are not there, or not complete.
        """
        kept = dict(record.known).get(_WAITING_REQUEST)
        try:
            text = kept if kept is not None else self._old_request(record).read_text(encoding="utf-8")
            return cast(dict[str, Any], json.loads(text))
        except (OSError, ValueError) as error:
            raise CloudError(f"the request of '{record.name}' cannot be read", str(error), "orch down") from error

    def drop_old_request(self, record: Record) -> None:
        """Delete the file of an older orch."""
        self._old_request(record).unlink(missing_ok=True)

    def _old_request(self, record: Record) -> Path:
        return self.local_file(record.name, _OLD_REQUEST)
