"""Placement groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, tag_facts, tag_list
from orch_fronts.aws.ec2.tags import now_of, sent
from orch_fronts.aws.ec2.visit import Visit, made_id
from orch_fronts.aws.ec2.words import missing, wrong_value

_FILTERS = frozenset({"group-name", "group-arn", "state", "strategy", "tag-key"})
_STRATEGIES = ("cluster", "spread", "partition")


def create(visit: Visit) -> dict[str, Any]:
    """Rule placement_group_name_is_taken."""
    name, strategy = str(visit.params.get("GroupName", "")), str(visit.params.get("Strategy", "cluster"))
    tags = sent(visit, "placement-group").get("placement-group", {})
    if not name:
        raise missing("groupName")
    if strategy not in _STRATEGIES:
        raise wrong_value(f"Invalid value '{strategy}' for strategy")
    if find(visit, name) is not None:
        raise AwsRefusal("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")

    def work() -> dict[str, Any]:
        made = {"region": visit.region, "name": name, "strategy": strategy, "tags": tags}
        visit.kept("placement")[_key(visit, name)] = made
        return {"PlacementGroup": _shown(visit, made)}

    return visit.changing(name, work)


def delete(visit: Visit) -> dict[str, Any]:
    """Rule placement_group_in_use_stays."""
    name = str(visit.params.get("GroupName", ""))
    if find(visit, name) is None:
        raise unknown(name)
    if name in _in_use(visit):
        words = f"The placement group '{name}' is in use and may not be deleted."
        raise AwsRefusal("InvalidPlacementGroup.InUse", words)

    def work() -> dict[str, Any]:
        visit.kept("placement").pop(_key(visit, name), None)
        return {}

    return visit.changing(name, work)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    names = [str(one) for one in visit.params.get("GroupNames", ())]
    for name in names:
        if find(visit, name) is None:
            raise unknown(name)
    ids = [str(one) for one in visit.params.get("GroupIds", ())]
    every = [
        one
        for one in visit.here("placement").values()
        if (not names or one["name"] in names) and (not ids or group_id(visit, one["name"]) in ids)
    ]
    found = chosen(visit, every, lambda one: _facts(visit, one), _FILTERS)
    return {"PlacementGroups": [_shown(visit, one) for one in found]}


def find(visit: Visit, name: str) -> dict[str, Any] | None:
    """By its name or its id."""
    here: dict[str, dict[str, Any]] = visit.here("placement")
    return next((one for one in here.values() if name in (one["name"], group_id(visit, one["name"]))), None)


def check(visit: Visit, name: str, zone: str) -> None:
    """Rules placement_group_must_exist and cluster_group_has_one_zone. Raises AwsRefusal."""
    found = find(visit, name)
    if found is None:
        raise unknown(name)
    elsewhere = {one["zone"] for one in _held(visit, found["name"])} - {zone}
    if found["strategy"] == "cluster" and elsewhere:
        words = f"The placement group '{name}' has instances in {min(elsewhere)}: it cannot span Availability Zones."
        raise wrong_value(words)


def group_id(visit: Visit, name: str) -> str:
    return made_id("pg", visit.region, name)


def tags_of(visit: Visit, name: str) -> dict[str, str]:
    one = find(visit, name)
    return now_of(visit, group_id(visit, one["name"]), one["tags"]) if one else {}


def unknown(name: str) -> AwsRefusal:
    return AwsRefusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _key(visit: Visit, name: str) -> str:
    return f"{visit.region}/{name}"


def _held(visit: Visit, name: str) -> list[dict[str, Any]]:
    """What launches hold in it."""
    every: list[dict[str, Any]] = list(visit.here("in use").values())
    return [one for one in every if one["placement"] == name]


def _in_use(visit: Visit) -> set[str]:
    return {str(one["placement"]) for one in visit.here("in use").values()}


def _facts(visit: Visit, one: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    name = one["name"]
    plain = {"group-name": [name], "strategy": [one["strategy"]], "state": ["available"]}
    return plain | {"group-arn": [visit.arn("placement-group", name)]} | tag_facts(tags_of(visit, name))


def _shown(visit: Visit, one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "GroupName": one["name"],
        "GroupId": group_id(visit, one["name"]),
        "GroupArn": visit.arn("placement-group", one["name"]),
        "State": "available",
        "Strategy": one["strategy"],
        "Tags": tag_list(tags_of(visit, one["name"])),
    }
