"""What a team's store records of the service that is its only client. Light: it is read before anything else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStore:
    """That the service is the only client.

    Attributes:
        address: Of the service.
        login: Which servers use.
        revoked: The members' logins that lost their rights, and get them again when the store is opened.
    """

    address: str
    login: str
    revoked: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return it as the row of `meta` keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, value: str) -> ServedStore:
        """Return what a row of `meta` keeps."""
        found = json.loads(value)
        return cls(address=found["address"], login=found["login"], revoked=tuple(found["revoked"]))
