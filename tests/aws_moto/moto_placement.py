"""Placement groups, which moto 5.2.5 does not have: it answers their operations with an HTML page of status 500.

Source: botocore's model of EC2 (operations CreatePlacementGroup, DescribePlacementGroups, DeletePlacementGroup, filters
of the second) and "Error codes for the Amazon EC2 API" (InvalidPlacementGroup.*), read November 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from moto_calls import Call, Reply, refusal, xml_reply


@dataclass
class PlacementGroups:
    """Those of all accounts, by account and region, and name; each with its tags.

    Attributes:
        in_use: Whether an instance that has not ended was launched into a group.
    """

    in_use: Callable[[Call, str], bool]
    groups: dict[tuple[str, str], dict[str, dict[str, str]]] = field(
        default_factory=dict[tuple[str, str], dict[str, dict[str, str]]]
    )

    def here(self, call: Call) -> dict[str, dict[str, str]]:
        return self.groups.setdefault(call.place, {})

    def answer(self, call: Call) -> Reply | None:
        """Return the answer of one of the three operations; None for another operation."""
        match call.operation:
            case "CreatePlacementGroup":
                return self._create(call)
            case "DescribePlacementGroups":
                return self._describe(call)
            case "DeletePlacementGroup":
                return self._delete(call)
            case _:
                return None

    def _create(self, call: Call) -> Reply:
        name = call.params["GroupName"]
        if name in self.here(call):
            return refusal("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        self.here(call)[name] = call.tags("placement-group")
        return xml_reply(call, f"<placementGroup>{_shown(name, self.here(call)[name])}</placementGroup>")

    def _describe(self, call: Call) -> Reply:
        found = [
            f"<item>{_shown(name, tags)}</item>"
            for name, tags in self.here(call).items()
            if all(_fits(name, tags, key, values) for key, values in call.filters().items())
        ]
        return xml_reply(call, f"<placementGroupSet>{''.join(found)}</placementGroupSet>")

    def _delete(self, call: Call) -> Reply:
        name = call.params["GroupName"]
        if name not in self.here(call):
            return refusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        if self.in_use(call, name):
            words = f"The placement group '{name}' is in use and may not be deleted."
            return refusal("InvalidPlacementGroup.InUse", words)
        del self.here(call)[name]
        return xml_reply(call, "<return>true</return>")


def _fits(name: str, tags: Mapping[str, str], key: str, values: list[str]) -> bool:
    if key.startswith("tag:"):
        return tags.get(key.removeprefix("tag:")) in values
    shown = {"group-name": {name}, "state": {"available"}, "strategy": {"cluster"}, "tag-key": set(tags)}
    return bool(shown[key] & set(values))  # KeyError: a filter that nobody needed yet


def _shown(name: str, tags: Mapping[str, str]) -> str:
    listed = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>" for key, value in tags.items()
    )
    plain = {"groupName": name, "groupId": f"pg-{name.encode().hex()[-17:]:0>17}", "strategy": "cluster",
             "state": "available"}  # fmt: skip
    fields = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in plain.items())
    return f"{fields}<tagSet>{listed}</tagSet>"
