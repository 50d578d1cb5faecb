"""Instances: one is a resource of the simulated cloud with one host, or a host of a group's resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch_fronts.google import limits, names
from orch_fronts.google.answering import compute_error, ends_operation
from orch_fronts.google.booting import BootingBodies
from orch_fronts.google.compute import machines, making, operations
from orch_fronts.google.compute.answers import (
    in_form,
    invalid,
    not_found,
    operation_error,
    taken,
    wrong_state,
)
from orch_fronts.google.compute.visit import Visit, check_name, kept, last
from orch_fronts.google.keys import with_keys
from orch_fronts.google.status import Refusal
from orch_fronts.google.visit import timestamp
from orchestrator.simulator.calls import ApiError, Code, Look
from orchestrator.simulator.state import Phase
from orchestrator.slices import SliceState, SliceView

STATUS = {
    Phase.CREATING: "PROVISIONING",
    Phase.READY: "RUNNING",
    Phase.MAINTENANCE: "REPAIRING",
    Phase.PREEMPTED: "STOPPING",
    Phase.FAILED: "TERMINATED",
    Phase.STOPPING: "STOPPING",
    Phase.STOPPED: "TERMINATED",
    Phase.STARTING: "STAGING",
    Phase.ENDING: "STOPPING",
}


def insert(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    before = operations.repeated(visit)
    if before is not None:
        return before
    given = visit.read("Instance")
    name = str(given.get("name", ""))
    check_name(name)
    machines.check_properties(given, zone, pools=limits.has_pools(visit.cloud, zone))
    check_words(given)
    if given.get("resourcePolicies"):
        raise invalid("resource.resourcePolicies", "a workload policy belongs to a group (rule policy_needs_a_group)")
    if any(one["name"] == name for one in every(visit, zone)):
        _same_token(visit, zone, name)
    machine = machines.machine_of(given)
    body = {"kind": "instance", "properties": _properties(given), "description": given.get("description", "")}
    market = machines.market_of(given)
    call = making.call_of(name, zone, machine.generation, 1, machine.chips, market, visit.request_id(), body)
    path, scope = f"zones/{zone}/instances/{name}", f"zones/{zone}"
    quota = limits.exceeded(visit.cloud, zone, limits.instance_needs(machine.name, 1, given))
    if quota is not None:
        found = making.quota_error(quota, visit.region(zone))
        return operations.begin(
            visit, scope, "insert", path, error=operation_error(found["code"], found["message"], 403)
        )
    try:
        uid = visit.cloud.create(call).uid
    except ApiError as error:
        if error.answer and ends_operation(error.answer, "compute"):
            return operations.begin(visit, scope, "insert", path, error=compute_error(error.answer))
        if error.code not in making.NO_ROOM:
            raise
        patience = int(given.get("params", {}).get("requestValidForDuration", {}).get("seconds", 0))
        found = making.error_of(error, visit.project, zone)
        if market == "flex-start" and patience and error.code is Code.NO_CAPACITY:
            making.keep_request(visit.cloud, visit.project, call, visit.cloud.state.now + patience, found)
            return operations.begin(visit, scope, "insert", path)
        failed = operation_error(found["code"], found["message"], 403 if error.code is Code.QUOTA else 503)
        after = visit.cloud.scenario.durations.queue
        return operations.begin(visit, scope, "insert", path, error=failed, after=after)
    return operations.begin(visit, scope, "insert", path, uid=uid)


def get(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    return _found(visit, zone, name)[1]


def listing(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    looks, unreachable = _looks(visit)
    if zone in unreachable:
        raise ApiError(Code.UNAVAILABLE, "the service is unavailable")
    found = [one for look in looks if look.zone == zone for one in of_look(visit, look)]
    found += [one for one in _waiting(visit) if last(one["zone"]) == zone]
    page, more = visit.page([one for one in found if visit.fits(one)])
    return {"kind": "compute#instanceList", "items": page} | ({"nextPageToken": more} if more else {})


def aggregated(visit: Visit) -> dict[str, Any]:
    """Rule unreachable_scope_is_named."""
    looks, unreachable = _looks(visit)
    found = [one for look in looks for one in of_look(visit, look)] + _waiting(visit)
    page, more = visit.page([one for one in found if visit.fits(one)])
    items: dict[str, Any] = {}
    for one in page:
        items.setdefault(f"zones/{last(one['zone'])}", {"instances": []})["instances"].append(one)
    for zone in unreachable:
        items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"zones/{zone} did not answer"}}
    answer: dict[str, Any] = {"items": items, "unreachables": [f"zones/{zone}" for zone in unreachable]}
    return answer | ({"nextPageToken": more} if more else {})


def delete(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    before = operations.repeated(visit)
    if before is not None:
        return before
    look, _ = _found(visit, zone, name)
    path = f"zones/{zone}/instances/{name}"
    if look is None:
        visit.changing("end", name, lambda: kept(visit.cloud, "wishes").pop(f"{zone}/{name}", None) and None)
        return operations.begin(visit, f"zones/{zone}", "delete", path)
    _alone(look, name, "delete")
    mark = len(visit.cloud.state.resources[look.uid].past)
    visit.cloud.end(name, zone)
    return operations.begin(visit, f"zones/{zone}", "delete", path, uid=look.uid, mark=mark)


def power(visit: Visit, zone: str, name: str, verb: str) -> dict[str, Any]:
    """stop or start."""
    visit.check_zone(zone)
    look, _ = _found(visit, zone, name)
    if look is None:
        raise wrong_state(f"The resource '{name}' is not ready")
    _alone(look, name, verb)
    mark = len(visit.cloud.state.resources[look.uid].past)
    (visit.cloud.stop if verb == "stop" else visit.cloud.start)(name, zone)
    return operations.begin(visit, f"zones/{zone}", verb, f"zones/{zone}/instances/{name}", uid=look.uid, mark=mark)


def amend(visit: Visit, zone: str, name: str, field: str) -> dict[str, Any]:
    """setMetadata or setLabels. field: "metadata" or "labels"."""
    visit.check_zone(zone)
    look, shown = _found(visit, zone, name)
    given = visit.read("Metadata" if field == "metadata" else "InstancesSetLabelsRequest")
    if look is None or look.size > 1:
        raise wrong_state(f"The resource '{name}' is not ready")
    mark = given.get("fingerprint" if field == "metadata" else "labelFingerprint", "")
    if mark != (shown["metadata"]["fingerprint"] if field == "metadata" else shown["labelFingerprint"]):
        raise invalid("fingerprint", "it is not that of the present value")
    value = {"items": given.get("items", [])} if field == "metadata" else given.get("labels", {})
    properties = look.extra["compute"]["properties"] | {field: value}
    check_words(properties)
    extra = {**look.extra, "compute": look.extra["compute"] | {"properties": properties}}
    if field == "metadata":
        extra["node"] = {"metadata": {item["key"]: item.get("value", "") for item in value["items"]}}
    visit.cloud.amend(name, zone, properties.get("labels", {}), extra)
    return operations.begin(visit, f"zones/{zone}", "setMetadata", f"zones/{zone}/instances/{name}")


def guest_attributes(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """Rules guest_attributes_show_host_keys and worker_knows_its_number. What the start-up script has written."""
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    look, shown = _found(visit, zone, name)
    path = visit.query.get("queryPath", "").strip("/")
    items = _told(visit, look, name) if look is not None and shown["status"] == "RUNNING" else []
    found = [item for item in items if path in ("", item["namespace"], f"{item['namespace']}/{item['key']}")]
    if not found:
        raise not_found(f"projects/{visit.project}/zones/{zone}/instances/{name}/guestAttributes/{path}")
    return {"kind": "compute#guestAttributes", "queryPath": path, "queryValue": {"items": found}}


def serial_output(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """The console that a test has written for this instance. A negative start counts from the end."""
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    _found(visit, zone, name)
    whole = str(kept(visit.cloud, "serial").get(f"{zone}/{name}", "")).encode()
    start = int(visit.query.get("start", "0"))
    begin = max(0, len(whole) + start) if start < 0 else start
    contents = whole[begin:].decode("utf-8", "replace")
    return {"kind": "compute#serialPortOutput", "contents": contents, "start": str(begin), "next": str(len(whole))}


def every(visit: Visit, zone: str) -> list[dict[str, Any]]:
    """All instances of a zone as they are, without a call in the audit log."""
    visit.cloud.advance()
    looks = [look for look in visit.cloud.live() if look.zone == zone and "compute" in look.extra]
    found = [one for look in looks for one in of_look(visit, look)]
    return found + [one for one in _waiting(visit) if last(one["zone"]) == zone]


def of_look(visit: Visit, look: Look) -> list[dict[str, Any]]:
    """The instances that a resource consists of."""
    if look.phase is Phase.ABSENT or (look.phase is Phase.FAILED and not making.was_ready(visit.cloud, look.uid)):
        return []
    view = visit.bodies.view(with_keys(look)) if look.phase is Phase.READY else None
    return [_shown(visit, look, rank, view) for rank in range(look.size)]


def instance_names(look: Look) -> list[str]:
    """Rule sequential_names_begin_at_one."""
    body: Mapping[str, Any] = look.extra["compute"]
    if body["kind"] == "instance":
        return [look.name]
    stem, _, hashes = str(body["base"]).rpartition("-")
    return [f"{stem}-{rank + 1:0{len(hashes)}d}" for rank in range(look.size)]


def check_words(properties: Mapping[str, Any]) -> None:
    """Labels and metadata. Raises ComputeRefusal."""
    items = properties.get("metadata", {}).get("items", ())
    try:
        names.check_labels(properties.get("labels", {}))
        names.check_metadata({item["key"]: item.get("value", "") for item in items})
    except Refusal as refusal:
        raise in_form(refusal) from refusal


def _same_token(visit: Visit, zone: str, name: str) -> None:
    """Refuse a name that is taken, unless it is by an earlier call with this token, whose answer was lost."""
    uid = visit.cloud.state.names.get(f"{zone}/{name}", "")
    token = visit.cloud.state.resources[uid].token if uid else ""
    if not token or token != visit.request_id():
        raise taken(f"projects/{visit.project}/zones/{zone}/instances/{name}")


def _properties(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in ("name", "params", "description")}


def _looks(visit: Visit) -> tuple[list[Look], tuple[str, ...]]:
    """All pages of what Compute Engine has made, and the zones that did not answer."""
    found: list[Look] = []
    missing: tuple[str, ...] = ()
    token = ""
    while True:
        page = visit.cloud.list_page(token)
        found += [look for look in page.items if "compute" in look.extra]
        missing += page.unreachable
        if not page.next_page or page.next_page == token:
            return found, tuple(dict.fromkeys(missing))
        token = page.next_page


def _found(visit: Visit, zone: str, name: str) -> tuple[Look | None, dict[str, Any]]:
    """The resource, None for one that waits for machines, and the instance as it is shown. Raises ComputeRefusal."""
    for look in visit.cloud.live():
        if look.zone == zone and "compute" in look.extra and name in instance_names(look):
            shown = of_look(visit, look)
            if shown:
                return look, shown[instance_names(look).index(name)]
    waiting = next((one for one in _waiting(visit) if one["name"] == name and last(one["zone"]) == zone), None)
    if waiting is None:
        raise not_found(f"projects/{visit.project}/zones/{zone}/instances/{name}")
    return None, waiting


def _waiting(visit: Visit) -> list[dict[str, Any]]:
    """Flex-start instances that wait for machines are PENDING (rule flex_start_waits)."""
    calls = [each["call"] for each in kept(visit.cloud, "wishes").values()]
    return [
        _form(visit, each["zone"], each["name"], each["extra"]["compute"], "PENDING", str(index), visit.cloud.state.now)
        for index, each in enumerate(calls, start=1)
        if each["extra"]["compute"]["kind"] == "instance"
    ]


def _shown(visit: Visit, look: Look, rank: int, view: SliceView | None) -> dict[str, Any]:
    name, status = instance_names(look)[rank], STATUS[look.phase]
    if view is not None and view.state is not SliceState.READY:  # a host died by itself
        status = "STOPPING" if view.state is SliceState.PREEMPTED else "REPAIRING"
    if look.phase is Phase.FAILED:  # the others go on
        status = "TERMINATED" if look.size == 1 or f"host {rank} of" in look.reason else "RUNNING"
    one = _form(visit, look.zone, name, look.extra["compute"], status, f"{int(look.uid)}{rank:04d}", look.created)
    if look.reason:
        one["statusMessage"] = look.reason
    if view is not None and status == "RUNNING":
        one["networkInterfaces"] = [_interface(each, view, rank) for each in one["networkInterfaces"]]
    return one


def _form(
    visit: Visit, zone: str, name: str, body: Mapping[str, Any], status: str, number: str, made: float
) -> dict[str, Any]:
    properties: Mapping[str, Any] = body["properties"]
    metadata: Mapping[str, Any] = properties.get("metadata", {})
    return {
        **properties,
        "kind": "compute#instance",
        "id": number,
        "name": name,
        "description": body.get("description", ""),
        "zone": operations.link(visit, f"zones/{zone}"),
        "selfLink": operations.link(visit, f"zones/{zone}/instances/{name}"),
        "machineType": operations.link(visit, f"zones/{zone}/machineTypes/{last(str(properties['machineType']))}"),
        "status": status,
        "creationTimestamp": timestamp(made),
        "labels": dict(properties.get("labels", {})),
        "labelFingerprint": _fingerprint(properties.get("labels", {})),
        "metadata": {**metadata, "fingerprint": _fingerprint(metadata.get("items", []))},
        "networkInterfaces": [dict(each) for each in properties.get("networkInterfaces", ())],
    }


def _interface(each: dict[str, Any], view: SliceView, rank: int) -> dict[str, Any]:
    """Rule external_address_only_when_asked."""
    host = view.hosts[rank]
    shown = each | {"networkIP": host.internal_ip}
    if each.get("accessConfigs"):
        local = host.host if host.host.startswith("127.") else "198.18." + ".".join(host.internal_ip.split(".")[2:])
        shown["accessConfigs"] = [dict(one) | {"natIP": local} for one in each["accessConfigs"]]
    return shown


def _told(visit: Visit, look: Look, name: str) -> Iterator[dict[str, str]] | list[dict[str, str]]:
    """What the guest has written by its start-up script. The port is told only where a body listens on its own."""
    look = with_keys(look)
    rank = instance_names(look).index(name)
    view = visit.bodies.view(look)
    kind, _, blob = look.extra["keys"]["host_public"][rank].partition(" ")
    if isinstance(visit.bodies, BootingBodies) and not visit.bodies.is_booted(look, rank):
        return []
    told = [{"namespace": "hostkeys", "key": kind, "value": blob}] if kind else []
    told.append({"namespace": "orch", "key": "worker-id", "value": str(rank)})
    if view.state is SliceState.READY:
        told.append({"namespace": "orch", "key": "ssh-port", "value": str(view.hosts[rank].port)})
    return told


def _alone(look: Look, name: str, verb: str) -> None:
    """Rule member_belongs_to_its_group."""
    if look.extra["compute"]["kind"] == "group":
        raise wrong_state(f"Cannot {verb} '{name}': it is managed by the group '{look.name}'")


def _fingerprint(value: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
