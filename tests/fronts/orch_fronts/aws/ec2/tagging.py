"""CreateTags, DeleteTags and DescribeTags, and the tags of anything by its id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2 import addresses, blocks, groups, network, placement, spot, tags
from orch_fronts.aws.ec2.filters import chosen, page
from orch_fronts.aws.ec2.machines import eni_tags, every, find, find_eni
from orch_fronts.aws.ec2.visit import Visit

_FILTERS = frozenset({"key", "value", "resource-id", "resource-type"})


def create(visit: Visit) -> dict[str, Any]:
    """Rule tags_are_added_to_those_that_are_there."""
    pairs = visit.params["Tags"]
    tags.read(pairs)
    return _change(visit, pairs, remove=False)


def delete(visit: Visit) -> dict[str, Any]:
    return _change(visit, visit.params.get("Tags", ()), remove=True)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    rows = [
        {"ResourceId": name, "ResourceType": kind, "Key": key, "Value": value}
        for kind, name, found in _everything(visit)
        for key, value in found.items()
    ]
    kept, more = page(visit, chosen(visit, rows, _facts, _FILTERS))
    return {"Tags": kept, **more}


def tags_of(visit: Visit, name: str) -> Mapping[str, str]:
    """Of an id, or of a placement group's name; none for what is not there."""
    prefix = name.partition("-")[0]
    try:
        if prefix == "i":
            return find(visit, name).tags
        if prefix == "eni":
            return eni_tags(*find_eni(visit, name))
    except AwsRefusal:
        return {}
    if prefix == "sir":
        return next((spot.tags_of(one) for one in every(visit) if one.spot_id == name), dict[str, str]())
    if prefix == "eipassoc":
        return addresses.tags_of(visit, addresses.of_association(visit, name))
    return _KEEPERS.get(prefix, placement.tags_of)(visit, name)


def _change(visit: Visit, pairs: Any, *, remove: bool) -> dict[str, Any]:
    """Raises AwsRefusal when one of the resources is not there."""
    names = [str(one) for one in visit.params["Resources"]]
    known = {name for _, name, _ in _everything(visit)}
    for name in names:
        if name not in known:
            if name.startswith("i-"):
                find(visit, name)
            raise AwsRefusal("InvalidID", f"The ID '{name}' is not valid")

    def work() -> dict[str, Any]:
        for name in names:
            gone = [{"Key": key} for key in tags_of(visit, name)] if remove and not pairs else pairs
            tags.change(visit, name, gone, remove=remove)
            if name.startswith("i-"):
                machine = find(visit, name)
                visit.cloud.state.resources[machine.look.uid].labels = machine.tags
        return {}

    return visit.changing(names[0], work)


def _everything(visit: Visit) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Kind, id and tags of all that can have tags here."""
    for machine in every(visit):
        yield "instance", machine.id, machine.tags
        if machine.life.over:
            continue
        for index in range(len(machine.record["interfaces"])):
            yield "network-interface", machine.eni(index), eni_tags(machine, index)
        for index in range(len(machine.record["devices"])):
            made_with = machine.record["tags"].get("volume", {})
            yield "volume", machine.volume(index), tags.now_of(visit, machine.volume(index), made_with)
        if machine.spot_id:
            yield "spot-instances-request", machine.spot_id, spot.tags_of(machine)
    for kind, held, keeper in _HELD:
        for name in visit.here(held):
            yield kind, name, keeper(visit, name)
    for one in visit.here("placement").values():
        yield "placement-group", placement.group_id(visit, one["name"]), placement.tags_of(visit, one["name"])
    for zone in visit.zones():
        name = network.subnet_id(zone)
        yield "subnet", name, tags.now_of(visit, name, {})


def _facts(row: Mapping[str, str]) -> dict[str, list[str]]:
    names = {"key": "Key", "value": "Value", "resource-id": "ResourceId", "resource-type": "ResourceType"}
    return {name: [row[field]] for name, field in names.items()}


_Keeper = Callable[[Visit, str], dict[str, str]]
_KEEPERS: Mapping[str, _Keeper] = {
    "sg": groups.tags_of,
    "eipalloc": addresses.tags_of,
    "cr": blocks.tags_of,
    "pg": placement.tags_of,
}
_HELD: tuple[tuple[str, str, _Keeper], ...] = (
    ("security-group", "groups", groups.tags_of),
    ("elastic-ip", "addresses", addresses.tags_of),
    ("capacity-reservation", "blocks", blocks.tags_of),
)
