"""Nodes of the TPU API: a node is a resource of the simulated cloud, a worker is one of its hosts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from orch_fronts.google import disks, limits, machines, market, names, operations
from orch_fronts.google.answering import ends_operation, rpc_error
from orch_fronts.google.booting import BootingBodies
from orch_fronts.google.keys import with_keys
from orch_fronts.google.status import (
    FAILED_PRECONDITION,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    Refusal,
    invalid,
)
from orch_fronts.google.tables import RegionalQuota, Slice
from orch_fronts.google.visit import EVERY_ZONE, Visit, timestamp
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.state import Phase
from orchestrator.slices import SliceState, SliceView

STATES = {
    Phase.CREATING: "CREATING",
    Phase.READY: "READY",
    Phase.MAINTENANCE: "RESTARTING",
    Phase.PREEMPTED: "PREEMPTED",
    Phase.FAILED: "TERMINATED",
    Phase.STOPPING: "STOPPING",
    Phase.STOPPED: "STOPPED",
    Phase.STARTING: "STARTING",
    Phase.ENDING: "DELETING",
}
_OUTPUT_ONLY = (
    *("name", "state", "healthDescription", "createTime", "networkEndpoints", "id", "apiVersion", "symptoms"),
    *("queuedResource", "multisliceNode", "upcomingMaintenance", "protectionTier", "health"),
)
_AMENDABLE = {"description", "labels", "tags", "metadata"}


def create(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    name = visit.query.get("nodeId", "")
    names.check_id("node_id", name)
    node = visit.read("Node")
    machine, node = checked(node)
    disks.check(visit, zone, machine.hosts, node)
    kind = market.of_node(visit, zone, machine.generation, node)
    call = create_call(name, zone, machine, kind, node, token=visit.request_id())
    target = names.node_name(visit.project, zone, name)
    if (zone, name) not in {(one.zone, one.name) for one in visit.cloud.live()}:
        limits.check_type(visit.cloud, zone, machine)
        limits.check_rate(visit.cloud)
        limits.check_tpu_quota(visit.cloud, zone, machine, 1, kind)
        quota = limits.exceeded(visit.cloud, zone, limits.node_needs(machine, 1, node))
        if quota is not None:
            return _failing(visit, zone, target, quota_error(visit, zone, quota))
    try:
        look = visit.cloud.create(call)
    except ApiError as error:
        if error.answer and ends_operation(error.answer, "tpu"):
            return _failing(visit, zone, target, rpc_error(error.answer))
        if error.code is not Code.NO_CAPACITY:
            raise
        return _failing(visit, zone, target, rpc_error("tpu-no-capacity-us-central1-c", zone=zone))
    return operations.begin(visit, zone, "create", target, uid=look.uid)


def quota_error(visit: Visit, zone: str, quota: RegionalQuota) -> dict[str, Any]:
    """That a node says it in its operation is modelled; the words are those of Compute Engine."""
    if quota.everywhere:
        return rpc_error("gce-quota-gpus-all-regions", quota=quota.id, limit=f"{quota.value}.0") | {"code": 8}
    region = visit.cloud.scenario.region(zone)
    words = {"quota": quota.id, "limit": f"{quota.value}.0", "region": region}
    return rpc_error("gce-quota-addresses", **words) | {"code": RESOURCE_EXHAUSTED.number}


def _failing(visit: Visit, zone: str, target: str, error: Mapping[str, Any]) -> dict[str, Any]:
    """An operation that fails after the time in which the service looks for machines."""
    return operations.begin(visit, zone, "create", target, error=error, after=visit.cloud.scenario.durations.queue)


def checked(node: Mapping[str, Any]) -> tuple[Slice, dict[str, Any]]:
    """What the node asks for, and the node without what only the service writes. Raises Refusal."""
    machine = machines.machine_of(node)
    machines.check_runtime(str(node.get("runtimeVersion", "")))
    names.check_labels(node.get("labels", {}))
    names.check_metadata(node.get("metadata", {}))
    if "networkConfig" in node and "networkConfigs" in node:
        raise invalid("node", "networkConfig and networkConfigs are mutually exclusive")
    return machine, {key: value for key, value in node.items() if key not in _OUTPUT_ONLY}


def create_call(
    name: str,
    zone: str,
    machine: Slice,
    kind: str,
    node: Mapping[str, Any],
    *,
    token: str = "",
    index: int = 0,
    run_seconds: float = 0.0,
) -> CreateCall:
    """index: which slice of a multislice request it is. run_seconds: after so long the service ends it, 0 = never."""
    return CreateCall(
        name=name,
        zone=zone,
        accelerator=machine.generation,
        hosts=machine.hosts,
        token=token,
        chips_per_host=machine.chips_per_host,
        market=kind,
        labels=dict(node.get("labels", {})),
        extra={"node": dict(node), "slice": index, "run_seconds": run_seconds},
    )


def get(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    return visit.write("Node", shown(visit, _node(visit, zone, name)))


def listing(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone, every=True)
    page = visit.cloud.list_page(uid_of(visit.query.get("pageToken", "")), visit.page_size())
    here = [look for look in page.items if zone in (EVERY_ZONE, look.zone) and not _is_instance(look)]
    answer: dict[str, Any] = {"nodes": [visit.write("Node", shown(visit, look)) for look in here]}
    missing = [where for where in page.unreachable if zone in (EVERY_ZONE, where)]
    if missing:
        answer["unreachable"] = [names.place(visit.project, where) for where in missing]
    if page.next_page:
        answer["nextPageToken"] = page_token(page.next_page)
    return answer


def delete(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    uid = _living(visit, zone, name).uid
    visit.cloud.end(name, zone)
    return operations.begin(visit, zone, "delete", names.node_name(visit.project, zone, name), uid=uid)


def stop(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    return _halt(visit, zone, name, "stop")


def start(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    return _halt(visit, zone, name, "start")


def update(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """By updateMask: description, labels, tags, metadata."""
    visit.check_zone(zone)
    new = visit.read("Node")
    fields = [field for field in visit.query.get("updateMask", "").split(",") if field]
    if not fields or not set(fields) <= _AMENDABLE:
        raise invalid("update_mask", f"updateMask must name some of {', '.join(sorted(_AMENDABLE))}")
    names.check_labels(new.get("labels", {}))
    names.check_metadata(new.get("metadata", {}))
    look = _living(visit, zone, name)
    node = {key: value for key, value in look.extra.get("node", {}).items() if key not in fields}
    node |= {field: new[field] for field in fields if field in new}
    visit.cloud.amend(name, zone, node.get("labels", {}), {**look.extra, "node": node})
    return operations.begin(visit, zone, "update", names.node_name(visit.project, zone, name), uid=look.uid)


def guest_attributes(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """Rule guest_attributes_show_host_keys. queryPath "" is everything; workerIds [""] or none: all workers."""
    visit.check_zone(zone)
    asked = visit.read("GetGuestAttributesRequest")
    look = with_keys(_node(visit, zone, name))
    view = _view(visit, look)
    if view is None or view.state is not SliceState.READY:
        raise Refusal(FAILED_PRECONDITION, f"{name} is {STATES[look.phase]}; its workers have told nothing yet")
    path = str(asked.get("queryPath", "")).strip("/")
    wanted = [str(each) for each in asked.get("workerIds", []) if each != ""] or [
        str(rank) for rank in range(look.size)
    ]
    metadata: Mapping[str, Any] = look.extra.get("node", {}).get("metadata", {})
    if str(metadata.get("enable-guest-attributes", "")).lower() == "false":
        return {"guestAttributes": [{"queryPath": path, "queryValue": {"items": []}} for _ in wanted]}
    found = [_attributes(visit, look, worker, path) for worker in wanted]
    return {"guestAttributes": found}


def shown(visit: Visit, look: Look) -> dict[str, Any]:
    """The node as the API shows it, with names of enum values."""
    look = with_keys(look)
    node: dict[str, Any] = dict(look.extra.get("node", {})) or {"acceleratorType": look.accelerator}
    view = _view(visit, look)
    state, reason = STATES[look.phase], look.reason
    if view is not None and view.state is not SliceState.READY:  # a host died by itself
        state, reason = ("PREEMPTED" if view.state is SliceState.PREEMPTED else "REPAIRING"), view.reason
    node |= {
        "name": names.node_name(visit.project, look.zone, look.name),
        "state": state,
        "createTime": timestamp(look.created),
        "id": str(int(look.uid)),
        "apiVersion": "V2",
        "labels": dict(look.labels),
    }
    if state == "READY":
        node["health"] = "HEALTHY"
        node["networkEndpoints"] = _endpoints(node, view or SliceView(state=SliceState.READY))
    if reason:
        node["healthDescription"] = reason
    if look.queued:
        queued = visit.cloud.state.queued[look.queued]
        node["queuedResource"] = names.queued_name(visit.project, queued.zone, queued.name)
        node["multisliceNode"] = bool(queued.more)
    return node


def is_over(cloud: SimulatedCloud, look: Look) -> bool:
    """Has a READY node run as long as it may?"""
    seconds = float(look.extra.get("run_seconds", 0.0))
    past = cloud.state.resources[look.uid].past
    began = next((at for at, phase in past if phase == Phase.READY.value), cloud.state.now)
    return bool(seconds) and cloud.state.now >= began + seconds


def page_token(uid: str) -> str:
    return base64.urlsafe_b64encode(uid.encode()).decode("ascii")


def uid_of(token: str) -> str:
    """Raises Refusal for a token that no page had."""
    try:
        return base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
    except (UnicodeError, binascii.Error) as error:
        raise invalid("page_token", "Invalid pageToken") from error


def _halt(visit: Visit, zone: str, name: str, verb: str) -> dict[str, Any]:
    """Rule only_one_host_can_be_stopped."""
    visit.check_zone(zone)
    look = _living(visit, zone, name)
    if look.size > 1:
        raise Refusal(FAILED_PRECONDITION, f"Cannot {verb} {name}: it has {look.size} workers, only one can be")
    if look.queued:
        raise Refusal(FAILED_PRECONDITION, f"Cannot {verb} {name}: it belongs to a queued resource")
    mark = len(visit.cloud.state.resources[look.uid].past)
    if verb == "stop":
        visit.cloud.stop(name, zone)
    else:
        visit.cloud.start(name, zone)
    target = names.node_name(visit.project, zone, name)
    return operations.begin(visit, zone, verb, target, uid=look.uid, mark=mark)


def _living(visit: Visit, zone: str, name: str) -> Look:
    """The node as it is now, without a call in the audit log. Raises Refusal, ApiError NOT_FOUND."""
    visit.cloud.advance()
    uid = _uid(visit, zone, name)
    found = next((look for look in visit.cloud.live() if look.uid == uid), None)
    if found is not None and _is_instance(found):
        raise _not_there(visit, zone, name)
    return found if found is not None else visit.cloud.get(name, zone)


def _node(visit: Visit, zone: str, name: str) -> Look:
    """As get. Raises Refusal, ApiError NOT_FOUND."""
    look = visit.cloud.get(name, zone)
    if _is_instance(look):
        raise _not_there(visit, zone, name)
    return look


def _is_instance(look: Look) -> bool:
    """What was made through Compute Engine is no node of the TPU API."""
    return "compute" in look.extra


def _not_there(visit: Visit, zone: str, name: str) -> Refusal:
    return Refusal(NOT_FOUND, f"Resource '{names.node_name(visit.project, zone, name)}' was not found")


def _uid(visit: Visit, zone: str, name: str) -> str:
    """ "" where there is none: the call itself then says so."""
    visit.cloud.advance()
    return visit.cloud.state.names.get(f"{zone}/{name}", "")


def _view(visit: Visit, look: Look) -> SliceView | None:
    """What its bodies say; None for a node that is not READY."""
    return visit.bodies.view(look) if look.phase is Phase.READY else None


def _endpoints(node: Mapping[str, Any], view: SliceView) -> list[dict[str, Any]]:
    """In worker order; with several network configs each worker has as many endpoints in a row."""
    configs: list[Mapping[str, Any]] = [*node.get("networkConfigs", ())] or [node.get("networkConfig", {})]
    found: list[dict[str, Any]] = []
    for host in view.hosts:
        for config in configs:
            endpoint: dict[str, Any] = {"ipAddress": host.internal_ip, "port": host.port}
            if config.get("enableExternalIps"):
                outside = host.host if host.host != host.internal_ip or host.host.startswith("127.") else ""
                endpoint["accessConfig"] = {"externalIp": outside or _outside(host.internal_ip)}
            found.append(endpoint)
    return found


def _outside(internal: str) -> str:
    """An address of the range for benchmarks (RFC 2544) for a node behind which nothing listens."""
    return "198.18." + ".".join(internal.split(".")[2:])


def _attributes(visit: Visit, look: Look, worker: str, path: str) -> dict[str, Any]:
    if not worker.isdecimal() or int(worker) >= look.size:
        raise invalid("worker_ids", f"{look.name} has no worker {worker!r}")
    kind, _, blob = look.extra["keys"]["host_public"][int(worker)].partition(" ")
    booted = not isinstance(visit.bodies, BootingBodies) or visit.bodies.is_booted(look, int(worker))
    items = [{"namespace": "hostkeys", "key": kind, "value": blob}] if kind and booted else []
    wanted = [item for item in items if path in ("", "hostkeys", f"hostkeys/{item['key']}")]
    return {"queryPath": path, "queryValue": {"items": wanted}}
