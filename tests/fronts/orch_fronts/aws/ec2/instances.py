"""DescribeInstances and what is done to instances that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2 import lives
from orch_fronts.aws.ec2.filters import chosen, page_size, tag_facts
from orch_fronts.aws.ec2.filters import page as page_of
from orch_fronts.aws.ec2.groups import names_of
from orch_fronts.aws.ec2.lives import CODES
from orch_fronts.aws.ec2.machines import (
    Machine,
    eni_tags,
    every,
    find,
    find_eni,
    instance,
    network_interface,
    of_look,
)
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import dry_run, missing, wrong_combination
from orchestrator.simulator.calls import ApiError, Code, Look
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.state import Phase

_FILTERS = frozenset(
    {
        "availability-zone",
        "client-token",
        "image-id",
        "instance-id",
        "instance-lifecycle",
        "instance-state-code",
        "instance-state-name",
        "instance-type",
        "instance.group-id",
        "launch-index",
        "network-interface.network-interface-id",
        "placement-group-name",
        "private-ip-address",
        "ip-address",
        "reservation-id",
        "spot-instance-request-id",
        "subnet-id",
        "tag-key",
        "tag-value",
        "vpc-id",
    }
)
_ENI_FILTERS = frozenset({"network-interface-id", "attachment.instance-id", "subnet-id", "group-id", "tag-key"})


def describe(visit: Visit) -> dict[str, Any]:
    """Rules page_ends_within_a_reservation, new_resource_may_not_be_shown_yet and page_may_be_empty..."""
    asked = [str(one) for one in visit.params.get("InstanceIds", ())]
    if asked and visit.params.get("MaxResults"):
        raise wrong_combination("The parameter instancesSet cannot be used with the parameter maxResults")
    listing = visit.cloud.list_page(size=1 << 20)
    if listing.unreachable:
        raise ApiError(Code.UNAVAILABLE, "the service is unavailable")
    if not listing.items and listing.next_page:
        return {"Reservations": [], "NextToken": str(visit.params.get("NextToken") or "0")}
    machines = [machine for look in _with_ended(visit, listing.items) for machine in of_look(visit, look)]
    if asked:
        machines = _of_ids(visit, machines, asked)
    found = chosen(visit, machines, _facts, _FILTERS)
    part, more = page_of(visit, found) if page_size(visit) < len(found) else (found, dict[str, str]())
    return {"Reservations": _reservations(part), **more}


def describe_attribute(visit: Visit) -> dict[str, Any]:
    """Of an instance's attributes only its user data, as it was sent."""
    name = str(visit.params["InstanceId"])
    data = str(find(visit, name).look.extra["ec2"]["user_data"])
    return {"InstanceId": name, "UserData": {"Value": data}}


def describe_status(visit: Visit) -> dict[str, Any]:
    """Status checks: a host that is down or silent fails those of the instance. Events are those that a test keeps."""
    visit.ask()
    asked = [str(one) for one in visit.params.get("InstanceIds", ())]
    machines = _of_ids(visit, every(visit), asked) if asked else every(visit)
    everything = bool(visit.params.get("IncludeAllInstances", False))
    shown = [one for one in machines if everything or one.life.state == "running"]
    found, more = page_of(visit, shown)
    return {"InstanceStatuses": [_status(visit, one) for one in found], **more}


def _status(visit: Visit, machine: Machine) -> dict[str, Any]:
    host = visit.cloud.state.resources[machine.look.uid].hosts[machine.rank]
    answers = host.up and visit.now >= host.silent_until
    checks = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    since = visit.kept("impaired").setdefault(machine.id, visit.now) if not answers else 0.0
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": since}
    return {
        "InstanceId": machine.id,
        "InstanceState": {"Code": CODES[machine.life.state], "Name": machine.life.state},
        "SystemStatus": checks,
        "InstanceStatus": checks if answers else {"Status": "impaired", "Details": [failed]},
        "Events": visit.kept("events").get(machine.id, []),
    }


def describe_interfaces(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("NetworkInterfaceIds", ())]
    pairs = [find_eni(visit, name) for name in asked]
    if not asked:
        living = [machine for machine in every(visit) if machine.life.state not in ("shutting-down", "terminated")]
        pairs = [(machine, index) for machine in living for index in range(len(machine.record["interfaces"]))]
    found, more = page_of(visit, chosen(visit, pairs, _eni_facts, _ENI_FILTERS))
    return {"NetworkInterfaces": [network_interface(*pair) for pair in found], **more}


def terminate(visit: Visit) -> dict[str, Any]:
    """Rule terminate_can_be_asked_again. Each launch ends as a whole when all that is left of it was named."""
    machines = _named(visit)
    changes = [_change(machine, "terminated" if machine.life.over else "shutting-down") for machine in machines]
    for look, ranks in _by_launch(machines):
        resource = visit.cloud.state.resources[look.uid]
        ended = {int(rank) for rank, one in visit.kept("alone").get(look.uid, {}).items()
                 if one["state"] == "terminated"}  # fmt: skip
        if resource.phase is Phase.ABSENT:
            continue
        if set(ranks) | ended == set(range(look.size)):
            visit.cloud.end(look.name, look.zone)
            visit.kept("causes").setdefault(look.uid, lives.BY_USER)
            continue
        visit.cloud.ask("end", look.name)
        for rank in set(ranks) - ended:
            lives.leave(visit.cloud, resource, rank, "terminated", lives.BY_USER)
    return {"TerminatingInstances": changes}


def stop(visit: Visit) -> dict[str, Any]:
    """Rules one_time_spot_cannot_be_stopped and what_was_launched_together_stops_together."""
    machines = _named(visit)
    for machine in machines:
        if machine.record["market"] == "spot":
            words = f"You can't stop the Spot Instance '{machine.id}' because it is associated with a one-time Spot"
            raise AwsRefusal("UnsupportedOperation", f"{words} Instance request.")
        if machine.life.state not in ("running", "stopping", "stopped"):
            raise _wrong_state(machine, "stopped")
    changes = [_change(one, "stopped" if one.life.state == "stopped" else "stopping") for one in machines]
    for look in _whole(machines):
        visit.cloud.stop(look.name, look.zone)
    return {"StoppingInstances": changes}


def start(visit: Visit) -> dict[str, Any]:
    machines = _named(visit)
    for machine in machines:
        if machine.life.state not in ("stopped", "pending", "running"):
            raise _wrong_state(machine, "started")
    changes = [_change(one, "running" if one.life.state == "running" else "pending") for one in machines]
    for look in _whole(machines):
        visit.cloud.start(look.name, look.zone)
        visit.kept("causes").pop(look.uid, None)
    return {"StartingInstances": changes}


def reservation(machines: Sequence[Machine]) -> dict[str, Any]:
    """Instances of one launch. The ids of its groups are those of the primary interface."""
    first = machines[0]
    return {
        "ReservationId": reservation_id(first),
        "OwnerId": first.visit.account,
        "Groups": names_of(first.visit, first.record["interfaces"][0]["groups"]),
        "Instances": [instance(machine) for machine in machines],
    }


def reservation_id(machine: Machine) -> str:
    return f"r-0{int(machine.look.uid):016x}"


def _with_ended(visit: Visit, looks: Iterable[Look]) -> list[Look]:
    """With those that have ended and are shown for a while yet."""
    found = {look.uid: look for look in looks}
    for uid, resource in visit.cloud.state.resources.items():
        if resource.phase is Phase.ABSENT and "ec2" in resource.extra:
            found.setdefault(uid, describe_resource(resource))
    return [found[uid] for uid in sorted(found)]


def _of_ids(visit: Visit, machines: Sequence[Machine], asked: Sequence[str]) -> list[Machine]:
    """Raises AwsRefusal for one that is not there, or not shown yet."""
    by_id = {machine.id: machine for machine in machines}
    for name in asked:
        if name not in by_id:
            find(visit, name)
            raise AwsRefusal("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
    return [machine for machine in machines if machine.id in asked]


def _reservations(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    launches: dict[str, list[Machine]] = {}
    for machine in machines:
        launches.setdefault(machine.look.uid, []).append(machine)
    return [reservation(one) for one in launches.values()]


def _named(visit: Visit) -> list[Machine]:
    """The instances that the call names. Raises AwsRefusal: nothing is done when one of them is not there."""
    names = list(dict.fromkeys(str(one) for one in visit.params.get("InstanceIds", ())))
    if not names:
        raise missing("InstanceId")
    found = [find(visit, name) for name in names]
    if visit.params.get("DryRun"):
        raise dry_run()
    return found


def _by_launch(machines: Sequence[Machine]) -> Iterable[tuple[Look, list[int]]]:
    found: dict[str, tuple[Look, list[int]]] = {}
    for machine in machines:
        found.setdefault(machine.look.uid, (machine.look, []))[1].append(machine.rank)
    return found.values()


def _whole(machines: Sequence[Machine]) -> list[Look]:
    """Raises AwsRefusal for a part of what was launched together."""
    for look, ranks in _by_launch(machines):
        if len(ranks) < look.size:
            words = f"{look.size} instances were launched together: this pretend EC2 stops and starts them together"
            raise AwsRefusal("UnsupportedOperation", words)
    return [look for look, _ in _by_launch(machines)]


def _change(machine: Machine, now: str) -> dict[str, Any]:
    before = machine.life.state
    return {
        "InstanceId": machine.id,
        "CurrentState": {"Code": CODES[now], "Name": now},
        "PreviousState": {"Code": CODES[before], "Name": before},
    }


def _wrong_state(machine: Machine, verb: str) -> AwsRefusal:
    words = f"The instance '{machine.id}' is not in a state from which it can be {verb}."
    return AwsRefusal("IncorrectInstanceState", words)


def _facts(machine: Machine) -> dict[str, Sequence[str]]:
    record, state = machine.record, machine.life.state
    first = record["interfaces"][0]
    return {
        "availability-zone": [machine.look.zone],
        "client-token": [record["token"]],
        "image-id": [record["image"]],
        "instance-id": [machine.id],
        "instance-lifecycle": [record["market"]] if record["market"] != "on-demand" else [],
        "instance-state-code": [str(CODES[state])],
        "instance-state-name": [state],
        "instance-type": [record["type"]],
        "instance.group-id": first["groups"],
        "launch-index": [str(machine.rank)],
        "network-interface.network-interface-id": [machine.eni(index) for index in range(len(record["interfaces"]))],
        "placement-group-name": [record["group"]] if record["group"] else [],
        "private-ip-address": machine.addresses[:1],
        "ip-address": [machine.public_address] if state == "running" else [],
        "reservation-id": [reservation_id(machine)],
        "spot-instance-request-id": [machine.spot_id],
        "subnet-id": [first["subnet"]],
        "vpc-id": [],
    } | tag_facts(machine.tags)


def _eni_facts(pair: tuple[Machine, int]) -> dict[str, Sequence[str]]:
    machine, index = pair
    given = machine.record["interfaces"][index]
    plain: dict[str, Sequence[str]] = {
        "network-interface-id": [machine.eni(index)],
        "attachment.instance-id": [machine.id],
        "subnet-id": [given["subnet"]],
        "group-id": given["groups"],
    }
    return plain | tag_facts(eni_tags(machine, index))
