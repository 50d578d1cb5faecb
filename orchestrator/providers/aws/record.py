"""The record of a slice on EC2; see providers/core/record.py.

A slice that waits for its Capacity Block records the request that is sent when the block begins, without host
keys: whoever sends it makes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.core.record import SliceRecord, SliceRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(SliceRecord):
    """A slice on EC2. Times are seconds since the epoch.

    Attributes:
        market: "", "spot", "reservation" or "block".
        reservation: Its id, for the last two.
        way: See access.Way.
        request: The parameters of the request that waits, as JSON without private keys; "" for none.
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
    request: str = ""
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


class Records(SliceRecords[Record]):
    """The records of EC2."""

    every = "the records of EC2"
    kind = Record
    tuples = ("host_public", "instances")

    @staticmethod
    def place_of(record: Record) -> tuple[str, ...]:
        return (str(record.principal), record.region)

    def read_request(self, record: Record) -> dict[str, Any]:
        """Return the parameters of the request that waits.

        Raises:
            CloudError: They are not there, or not complete.
        """
        try:
            return cast(dict[str, Any], json.loads(record.request))
        except ValueError as error:
            raise CloudError(f"the request of '{record.name}' cannot be read", str(error), "orch down") from error
