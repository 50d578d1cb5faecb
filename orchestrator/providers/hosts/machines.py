"""The user's own machines as a candidate carries them, and `user@host:port` as people write it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress
from orchestrator.slices import Candidate

DETAIL = "hosts"
_WRITTEN = re.compile(
    r"(?:(?P<user>[^@\s,]+)@)?"
    r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+(?:%[A-Za-z0-9_.-]+)?)\]|(?P<host>[^@:\s,\[\]]+))(?::(?P<port>[0-9]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHost:
    """One machine as the task names it; what is empty or 0 comes from the person's own SSH configuration.

    jump: hops as ssh -J takes them, `user@host:port,user@host:port`. internal_ip: how its peers reach it, when that
    differs from its host name.
    """

    host: str
    user: str = ""
    port: int = 0
    key: str = ""
    jump: str = ""
    internal_ip: str = ""


def to_details(hosts: Sequence[OwnHost]) -> tuple[tuple[str, str], ...]:
    """For `Candidate.details`."""
    return ((DETAIL, json.dumps([asdict(host) for host in hosts])),)


def from_details(candidate: Candidate) -> tuple[OwnHost, ...]:
    """The machines of a candidate, in rank order. Raises UserError when it names none."""
    fields = cast(list[dict[str, Any]], json.loads(candidate.detail(DETAIL, "[]")))
    if len(fields) != candidate.hosts or not fields:
        raise UserError(
            f"{candidate.hosts} hosts are requested and {len(fields)} are named",
            "with `infra: hosts` every machine is named, in rank order",
            "hosts: {addresses: [user@first, user@second]}   in the task file",
        )
    return tuple(OwnHost(**host) for host in fields)


def refuse_twins(addresses: Sequence[HostAddress]) -> None:
    """Raise UserError when two names lead to one account of one machine: both ranks would share one folder there."""
    first: dict[tuple[object, ...], int] = {}
    for address in addresses:
        place = (address.host, address.port, address.user, address.jump and address.jump.host)
        other = first.setdefault(place, address.rank)
        if other != address.rank:
            raise UserError(
                f"hosts {other} and {address.rank} are the same machine",
                f"both names lead to {address.user}@{address.host} port {address.port}",
                "name each machine once in `hosts`   (orch check hosts FILE shows where each name leads)",
            )


def parse_address(written: str) -> OwnHost:
    """`host`, `user@host`, `host:port`, `user@[ipv6]:port`. Raises UserError."""
    found = _WRITTEN.fullmatch(written.strip())
    port = int(found["port"] or 0) if found else 0
    host = (found["ipv6"] or found["host"]) if found else ""
    if (
        found is None
        or (found["port"] and not 1 <= port <= 65535)
        or host.startswith("-")
        or (found["user"] or "").startswith("-")
    ):
        raise UserError(
            f"'{written}' is not the address of a host",
            "expected: user@host:port, the user and port may be left out",
            "hosts: {addresses: [user@first, user@second]}   in the task file",
        )
    return OwnHost(host=host, user=found["user"] or "", port=port)
