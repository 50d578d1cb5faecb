"""Queued resources of the TPU API: a queued request of the simulated cloud, with one node or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.google import disks, limits, market, names, operations
from orch_fronts.google.nodes import checked, create_call, page_token, quota_error, uid_of
from orch_fronts.google.status import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    Canonical,
    Refusal,
    invalid,
    rpc_status,
)
from orch_fronts.google.visit import EVERY_ZONE, Visit, duration_of, seconds_of, timestamp
from orchestrator.simulator.calls import QueueCall
from orchestrator.simulator.state import Queued, QueuePhase

STATES = {
    QueuePhase.UNSPECIFIED: "STATE_UNSPECIFIED",
    QueuePhase.CREATING: "CREATING",
    QueuePhase.ACCEPTED: "ACCEPTED",
    QueuePhase.WAITING: "WAITING_FOR_RESOURCES",
    QueuePhase.PROVISIONING: "PROVISIONING",
    QueuePhase.ACTIVE: "ACTIVE",
    QueuePhase.FAILED: "FAILED",
    QueuePhase.SUSPENDING: "SUSPENDING",
    QueuePhase.SUSPENDED: "SUSPENDED",
    QueuePhase.DELETING: "DELETING",
}
_WITH_DATA = frozenset(STATES) - {QueuePhase.UNSPECIFIED, QueuePhase.WAITING}  # these have no message of their own
_KEPT = "google queued"
_OUTPUT_ONLY = ("name", "createTime", "state")


def create(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    name = visit.query.get("queuedResourceId", "")
    names.check_id("queued_resource_id", name)
    request = {key: value for key, value in visit.read("QueuedResource").items() if key not in _OUTPUT_ONLY}
    spec, node_ids, multi = _spec(visit, zone, name, request)
    machine, node = checked(spec.get("node", {}))
    disks.check(visit, zone, machine.hosts * len(node_ids), node)
    kind = market.of_queued(visit, zone, machine.generation, request, node)
    first, *more = [
        create_call(node_id, zone, machine, kind, node, index=index, run_seconds=market.run_seconds(request))
        for index, node_id in enumerate(node_ids)
    ]
    not_before, valid_for = _times(visit, request.get("queueingPolicy", {}))
    call = QueueCall(
        name=name,
        node=first,
        request_id=visit.request_id(),
        valid_for=valid_for,
        not_before=not_before,
        more=tuple(more),
    )
    if (zone, name) not in {(one.zone, one.name) for one in visit.cloud.state.queued.values() if not one.gone}:
        limits.check_type(visit.cloud, zone, machine)
        limits.check_rate(visit.cloud)
        limits.check_tpu_quota(visit.cloud, zone, machine, len(node_ids), kind)
        quota = limits.exceeded(visit.cloud, zone, limits.node_needs(machine, len(node_ids), node))
        if quota is not None:
            error = quota_error(visit, zone, quota)
            raise Refusal(RESOURCE_EXHAUSTED, str(error["message"]))
    look = visit.cloud.queue(call)
    kept = visit.cloud.state.front.setdefault(_KEPT, {})
    kept.setdefault(look.uid, {"request": request, "multi": multi})
    target = names.queued_name(visit.project, zone, name)
    return operations.begin(visit, zone, "create", target, uid=look.uid)


def get(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    look = visit.cloud.get_queued(name, zone)
    return visit.write("QueuedResource", shown(visit, visit.cloud.state.queued[look.uid]))


def listing(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone, every=True)
    after = uid_of(visit.query.get("pageToken", ""))
    looks = [each for each in visit.cloud.list_queued() if each.uid > after and zone in (EVERY_ZONE, each.zone)]
    size = visit.page_size() or visit.cloud.scenario.page
    page = [visit.cloud.state.queued[look.uid] for look in looks[:size]]
    answer: dict[str, Any] = {"queuedResources": [visit.write("QueuedResource", shown(visit, each)) for each in page]}
    if len(looks) > size:
        answer["nextPageToken"] = page_token(looks[size - 1].uid)
    return answer


def delete(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.request_id()
    uid = visit.cloud.get_queued(name, zone).uid
    visit.cloud.delete_queued(name, zone, force=visit.query.get("force", "").lower() in ("true", "1"))
    return operations.begin(visit, zone, "delete", names.queued_name(visit.project, zone, name), uid=uid)


def reset(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.reset_queued(name, zone)
    uid = visit.cloud.get_queued(name, zone).uid
    return operations.begin(visit, zone, "reset", names.queued_name(visit.project, zone, name), uid=uid)


def shown(visit: Visit, queued: Queued) -> dict[str, Any]:
    """As the API shows it, with names of enum values; one nodeSpec with nodeId per node (gcloud 528, source)."""
    kept: Mapping[str, Any] = visit.cloud.state.front.get(_KEPT, {}).get(queued.uid, {})
    parent = names.place(visit.project, queued.zone)
    specs = [
        {"parent": parent, "nodeId": str(each["name"]), "node": dict(each["extra"].get("node", {}))}
        for each in queued.nodes
    ]
    return {
        **kept.get("request", {}),
        "name": names.queued_name(visit.project, queued.zone, queued.name),
        "createTime": timestamp(queued.created),
        "tpu": {"nodeSpec": specs},
        "state": _state(queued),
    }


def _state(queued: Queued) -> dict[str, Any]:
    name = STATES[queued.phase]
    state: dict[str, Any] = {"state": name}
    data: dict[str, Any] = {}
    if queued.phase is QueuePhase.FAILED:
        data = {"error": rpc_status(_code(queued.reason), queued.reason)}
    if queued.phase in _WITH_DATA:
        state[f"{name.lower()}Data"] = data
    if queued.phase in (QueuePhase.SUSPENDING, QueuePhase.SUSPENDED):
        state["stateInitiator"] = "SERVICE" if queued.reason or _ran_out(queued) else "USER"
    return state


def _ran_out(queued: Queued) -> bool:
    """Rule run_duration_ends_the_nodes: it is the service that ends them, after their time."""
    longest = max(float(each["extra"].get("run_seconds", 0.0)) for each in queued.nodes)
    times = {phase: at for at, phase in queued.past}
    began, ended = times.get(QueuePhase.ACTIVE.value), times.get(QueuePhase.SUSPENDING.value)
    return longest > 0 and began is not None and ended is not None and ended - began >= longest


def _code(reason: str) -> Canonical:
    """The cloud keeps words only (queue.py, capacity.py): a name that is taken, a kind that the zone lacks, no room."""
    if " exists in " in reason:
        return ALREADY_EXISTS
    return INVALID_ARGUMENT if " has no " in reason else RESOURCE_EXHAUSTED


def _spec(visit: Visit, zone: str, name: str, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str], bool]:
    """The node's specification, the ids of the nodes, and whether it is a multislice request. Raises Refusal."""
    specs = request.get("tpu", {}).get("nodeSpec", [])
    if len(specs) != 1:
        raise invalid("queued_resource.tpu.node_spec", f"There are {len(specs)} nodeSpec; exactly one is needed")
    spec = specs[0]
    if spec.get("parent", "") != names.place(visit.project, zone):
        raise invalid("queued_resource.tpu.node_spec.parent", "parent of the nodeSpec must be that of the request")
    many = spec.get("multisliceParams") or spec.get("multiNodeParams")
    if many is None:
        names.check_id("node_id", str(spec.get("nodeId", "")))
        return spec, [str(spec["nodeId"])], False
    if "nodeId" in spec:
        raise invalid("queued_resource.tpu.node_spec", "nodeId and multisliceParams are mutually exclusive")
    count, prefix = int(many.get("nodeCount", 0)), str(many.get("nodeIdPrefix", "")) or name
    if count < 2:
        raise invalid("queued_resource.tpu.node_spec.multislice_params.node_count", "nodeCount must be more than 1")
    ids = [f"{prefix}-{index}" for index in range(count)]
    names.check_id("node_id_prefix", ids[-1])
    return spec, ids, True


def _times(visit: Visit, policy: Mapping[str, Any]) -> tuple[float, float | None]:
    """Seconds until it may be filled, and until it expires. Raises Refusal."""
    if len(policy) > 1:
        raise invalid("queueing_policy", f"{' and '.join(policy)} are mutually exclusive")
    now = visit.cloud.clock.now()
    begin, end = 0.0, None
    interval: Mapping[str, Any] = policy.get("validInterval", {})
    if "validUntilDuration" in policy:
        end = duration_of(policy["validUntilDuration"])
    elif "validUntilTime" in policy or "endTime" in interval:
        end = seconds_of(policy.get("validUntilTime", interval.get("endTime"))) - now
    if "validAfterDuration" in policy:
        begin = duration_of(policy["validAfterDuration"])
    elif "validAfterTime" in policy or "startTime" in interval:
        begin = seconds_of(policy.get("validAfterTime", interval.get("startTime"))) - now
    if end is not None and not end > max(0.0, begin):
        raise invalid("queueing_policy", "the request would have expired before it can be filled")
    return max(0.0, begin), end
