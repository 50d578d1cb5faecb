"""One request at the open cloud: who asks for what, in which version, and what stands behind the nodes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orch_fronts.google import messages
from orch_fronts.google.limits import check_zone
from orch_fronts.google.status import invalid
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.cloud import SimulatedCloud

EVERY_ZONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """numbers: the caller wants enum values as numbers. query: each parameter's last value."""

    cloud: SimulatedCloud
    bodies: Bodies
    project: str
    version: str
    query: Mapping[str, str]
    body: bytes
    numbers: bool = False

    def read(self, kind: str) -> dict[str, Any]:
        """Raises Refusal."""
        return messages.read(self.version, kind, self.body)

    def write(self, kind: str, message: Mapping[str, Any]) -> dict[str, Any]:
        return messages.write(self.version, kind, message, numbers=self.numbers)

    def request_id(self) -> str:
        """The caller's token, "" for none. Raises Refusal for what is no UUID."""
        given = self.query.get("requestId", "")
        try:
            return str(uuid.UUID(given)) if given else ""
        except ValueError as error:
            raise invalid("request_id", f"requestId {given!r} is not a UUID") from error

    def page_size(self) -> int | None:
        given = self.query.get("pageSize", "")
        if given and not (given.isascii() and given.isdigit()):
            raise invalid("page_size", f"pageSize {given!r} is not a number")
        return int(given) or None if given else None

    def check_zone(self, zone: str, *, every: bool = False) -> None:
        """Rule zone_that_is_not_there_is_denied. every: `-` is allowed. Raises Refusal."""
        if every and zone == EVERY_ZONE:
            return
        check_zone(self.cloud, self.project, zone)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds_of(moment: object) -> float:
    """Of an RFC 3339 time. Raises Refusal."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError as error:
        raise invalid("queueing_policy", f"{moment!r} is not a time") from error


def duration_of(length: object) -> float:
    """Seconds of a duration in its JSON form, "3600s". Raises Refusal."""
    text = str(length)
    try:
        return float(text.removesuffix("s"))
    except ValueError as error:
        raise invalid("queueing_policy", f"{length!r} is not a duration") from error
