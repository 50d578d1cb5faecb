"""One request at the open cloud, and what the front keeps beside it: templates, policies, groups, rules, operations.

All of it is in the cloud's own state, as plain JSON values, so that a later process finds it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from orch_fronts.google.compute import schema
from orch_fronts.google.compute.answers import denied, invalid
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError, Code
from orchestrator.simulator.cloud import SimulatedCloud

_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_KEPT = "compute "
_FILTER = re.compile(r'\(?\s*(?P<key>[a-zA-Z][\w.-]*)\s*(?:=|eq)\s*"?(?P<value>[^")\s]*)"?\s*\)?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """query: each parameter's last value."""

    cloud: SimulatedCloud
    bodies: Bodies
    project: str
    query: Mapping[str, str]
    body: bytes

    def read(self, kind: str) -> dict[str, Any]:
        """Raises ComputeRefusal."""
        return schema.read(kind, self.body)

    def kept(self, kind: str) -> dict[str, Any]:
        """What the front keeps of this kind, by name."""
        return kept(self.cloud, kind)

    def number(self) -> int:
        numbers = self.kept("numbers")
        numbers["last"] = int(numbers.get("last", 0)) + 1
        return int(numbers["last"])

    def request_id(self) -> str:
        """The caller's token, "" for none. Raises ComputeRefusal for what is no UUID."""
        given = self.query.get("requestId", "")
        try:
            return str(uuid.UUID(given)) if given else ""
        except ValueError as error:
            raise invalid("requestId", f"'{given}'. It is not a UUID") from error

    def changing(self, op: str, name: str, work: Callable[[], None]) -> None:
        """Do a change of what only the front keeps: faults befall it as they do a resource. Raises ApiError.

        A call without an answer has acted here: that is the harder case for a client.
        """
        try:
            self.cloud.ask(op, name)
        except ApiError as error:
            if error.code is Code.TIMEOUT:
                work()
            raise
        work()

    def check_zone(self, zone: str) -> None:
        if not self.cloud.scenario.region(zone):
            raise denied(f"Permission denied on 'zones/{zone}' (or it may not exist).")

    def region(self, zone: str) -> str:
        return self.cloud.scenario.region(zone)

    def fits(self, item: Mapping[str, Any]) -> bool:
        """Rule filter_is_of_equalities: terms such as labels.key=value, joined by blanks or AND."""
        given = self.query.get("filter", "").replace(" AND ", " ").strip()
        found = list(_FILTER.finditer(given))
        if given and not found:
            raise invalid("filter", f"'{given}'")
        return all(_value(item, match["key"]) == match["value"] for match in found)

    def page(self, items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        """The page that was asked for, and the token of the next one."""
        most = self.cloud.scenario.page
        size = min(int(self.query.get("maxResults", "0") or 0) or most, most)
        start = int(self.query.get("pageToken", "0") or 0)
        more = str(start + size) if start + size < len(items) else ""
        return items[start : start + size], more


def kept(cloud: SimulatedCloud, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = cloud.state.front.setdefault(_KEPT + kind, {})
    return found


def left(cloud: SimulatedCloud) -> list[str]:
    """All that the front keeps and a client would have to delete, as `kind/name`: for the oracles of tests."""
    kinds = ("groups", "templates", "policies", "firewalls")
    return [f"{kind}/{name}" for kind in kinds for name in kept(cloud, kind)]


def check_name(name: str) -> None:
    """Rule name_is_rfc1035."""
    if not _NAME.fullmatch(name):
        raise invalid("resource.name", f"'{name}'. Must be a match of regex '{_NAME.pattern}'")


def last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _value(item: Mapping[str, Any], key: str) -> str:
    """Of `labels.key` or of a field."""
    found: Any = item
    for part in key.split(".", 1):
        found = cast(Mapping[str, Any], found).get(part, "") if isinstance(found, Mapping) else ""
    return str(found)
