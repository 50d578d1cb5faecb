"""Spot requests: one for each instance of a spot launch, told from the instance and from what was cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, page, tag_facts, tag_list
from orch_fronts.aws.ec2.machines import Machine, every
from orch_fronts.aws.ec2.tags import now_of
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import missing

_FILTERS = frozenset({"instance-id", "spot-instance-request-id", "state", "status-code", "tag-key"})


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("SpotInstanceRequestIds", ())]
    known = {machine.spot_id: machine for machine in every(visit) if machine.spot_id}
    wanted = [_found(known, name) for name in asked] if asked else list(known.values())
    found, more = page(visit, chosen(visit, wanted, _facts, _FILTERS))
    return {"SpotInstanceRequests": [_shown(machine) for machine in found], **more}


def cancel(visit: Visit) -> dict[str, Any]:
    """Rule cancelled_spot_request_leaves_the_instance."""
    asked = [str(one) for one in visit.params.get("SpotInstanceRequestIds", ())]
    if not asked:
        raise missing("SpotInstanceRequestId")
    known = {machine.spot_id: machine for machine in every(visit) if machine.spot_id}
    for name in asked:
        _found(known, name)

    def work() -> dict[str, Any]:
        for name in asked:
            if not known[name].life.over:
                visit.kept("cancelled")[name] = visit.now
        return {
            "CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": one, "State": "cancelled"} for one in asked]
        }

    return visit.changing(asked[0], work)


def tags_of(machine: Machine) -> dict[str, str]:
    return now_of(machine.visit, machine.spot_id, machine.record["tags"].get("spot-instances-request", {}))


def _found(known: dict[str, Machine], name: str) -> Machine:
    if name not in known:
        words = f"The spot instance request ID '{name}' does not exist"
        raise AwsRefusal("InvalidSpotInstanceRequestID.NotFound", words)
    return known[name]


def _state(machine: Machine) -> tuple[str, str]:
    """State and status code. Rule spot_request_tells_why_its_instance_ended."""
    ended = machine.life.state in ("shutting-down", "terminated")
    cancelled = machine.spot_id in machine.visit.kept("cancelled")
    if cancelled:
        return "cancelled", "request-canceled-and-instance-running" if not ended else "instance-terminated-by-user"
    if ended:
        taken = machine.life.cause == "Server.SpotInstanceTermination"
        return "closed", "instance-terminated-no-capacity" if taken else "instance-terminated-by-user"
    marked = bool(machine.look.hosts) and machine.look.hosts[machine.rank].dies is not None
    return "active", "marked-for-termination" if marked else "fulfilled"


def _facts(machine: Machine) -> dict[str, Sequence[str]]:
    state, status = _state(machine)
    plain = {"instance-id": [machine.id], "spot-instance-request-id": [machine.spot_id]}
    return plain | {"state": [state], "status-code": [status]} | tag_facts(tags_of(machine))


def _shown(machine: Machine) -> dict[str, Any]:
    state, status = _state(machine)
    return {
        "SpotInstanceRequestId": machine.spot_id,
        "InstanceId": machine.id,
        "State": state,
        "Status": {"Code": status, "Message": status.replace("-", " ")},
        "Type": str(machine.record["spot"].get("SpotInstanceType", "one-time")),
        "CreateTime": machine.look.created,
        "LaunchedAvailabilityZone": machine.look.zone,
        "InstanceInterruptionBehavior": str(machine.record["spot"].get("InstanceInterruptionBehavior", "terminate")),
        "Tags": tag_list(tags_of(machine)),
    }
