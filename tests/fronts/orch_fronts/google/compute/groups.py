"""Managed instance groups with a workload policy: a TPU slice of several hosts. A group is one resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.google import limits
from orch_fronts.google.compute import instances, machines, making, operations
from orch_fronts.google.compute.answers import invalid, not_found, required, taken, wrong_state
from orch_fronts.google.compute.plain import POLICIES, TEMPLATES
from orch_fronts.google.compute.visit import Visit, check_name, kept
from orch_fronts.google.visit import timestamp
from orchestrator.simulator.calls import ApiError, CreateCall, Look
from orchestrator.simulator.reading import describe_resource as look_of
from orchestrator.simulator.state import Phase

COLLECTION = "instanceGroupManagers"


def insert(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    before = operations.repeated(visit)
    if before is not None:
        return before
    given = visit.read("InstanceGroupManager")
    name, scope = str(given.get("name", "")), f"zones/{zone}"
    check_name(name)
    group = _checked(visit, zone, given)
    path = f"{scope}/{COLLECTION}/{name}"
    known = visit.kept("groups").get(path)
    if known is not None:
        if not known["request"] or known["request"] != visit.request_id():
            raise taken(f"projects/{visit.project}/{path}")
        return operations.begin(visit, scope, "insert", path)
    if group["size"]:
        _fill(visit, zone, name, group, path)
    else:
        visit.changing("create", name, lambda: visit.kept("groups").update({path: group}))
    return operations.begin(visit, scope, "insert", path)


def resize(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """Only of an empty group: that is how flex-start machines are asked for (rule flex_start_group_begins_empty)."""
    visit.check_zone(zone)
    before = operations.repeated(visit)
    if before is not None:
        return before
    path, group = _found(visit, zone, name)
    size = visit.query.get("size", "")
    if not size.isdecimal():
        raise required("size")
    if group["size"] != int(size):
        if group["size"] or making.resource_phase(visit.cloud, group["uid"]) is not Phase.ABSENT:
            raise wrong_state(f"'{name}' has a topology; only an empty group can be resized")
        resized = group | {"size": int(size), "form": group["form"] | {"targetSize": int(size)}}
        _check_size(visit, resized)
        _fill(visit, zone, name, resized, path)
    return operations.begin(visit, f"zones/{zone}", "resize", path)


def get(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    return _shown(visit, *_found(visit, zone, name))


def listing(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("list", COLLECTION)
    mine = [_shown(visit, *each) for each in visit.kept("groups").items() if each[0].startswith(f"zones/{zone}/")]
    page, more = visit.page([each for each in mine if visit.fits(each)])
    return {"items": page} | ({"nextPageToken": more} if more else {})


def aggregated(visit: Visit) -> dict[str, Any]:
    visit.cloud.ask("list", COLLECTION)
    every = [_shown(visit, *each) for each in visit.kept("groups").items()]
    page, more = visit.page([each for each in every if visit.fits(each)])
    items: dict[str, Any] = {}
    for each in page:
        zone = each["zone"].rpartition("/")[2]
        items.setdefault(f"zones/{zone}", {COLLECTION: []})[COLLECTION].append(each)
    answer: dict[str, Any] = {"items": items, "unreachables": []}
    return answer | ({"nextPageToken": more} if more else {})


def delete(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    before = operations.repeated(visit)
    if before is not None:
        return before
    path, group = _found(visit, zone, name)
    uid = group["uid"] if making.resource_phase(visit.cloud, group["uid"]) is not Phase.ABSENT else ""

    def work() -> None:
        kept(visit.cloud, "wishes").pop(f"{zone}/{name}", None)
        group["deleting"] = True
        if not uid:
            visit.kept("groups").pop(path)

    if not uid:
        visit.changing("end", name, work)
        return operations.begin(visit, f"zones/{zone}", "delete", path)
    mark = len(visit.cloud.state.resources[uid].past)
    visit.cloud.end(name, zone)
    if visit.cloud.state.resources[uid].phase is Phase.ENDING:  # a fault may have let the call have no effect
        work()
    return operations.begin(visit, f"zones/{zone}", "delete", path, uid=uid, mark=mark)


def members(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """listManagedInstances."""
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    _, group = _found(visit, zone, name)
    error = _error(visit, zone, name)
    if error is not None:
        attempt = {"errors": {"errors": [{"code": error["code"], "message": error["message"]}]}}
        found = [
            {"name": one, "currentAction": "CREATING", "targetStatus": "RUNNING", "lastAttempt": attempt}
            for one in _names(group)
        ]
    else:
        found = [_member(visit, one, group) for one in _instances(visit, group)]
    page, more = visit.page(found)
    return {"managedInstances": page} | ({"nextPageToken": more} if more else {})


def errors(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """listErrors."""
    visit.check_zone(zone)
    visit.cloud.ask("get", name)
    _found(visit, zone, name)
    error = _error(visit, zone, name)
    found: list[dict[str, Any]] = []
    if error is not None:
        words = {"code": error["code"], "message": error["message"]}
        found = [{"error": words, "timestamp": error["at"], "instanceActionDetails": {"action": "CREATING"}}]
    return {"items": found}


def adopt(visit: Visit) -> None:
    """A create whose request arrived late has made machines: its group is there as well."""
    for look in visit.cloud.live():
        body = look.extra.get("compute", {})
        if body.get("kind") == "group" and body["path"] not in visit.kept("groups"):
            visit.kept("groups")[body["path"]] = body["group"] | {"uid": look.uid}


def _checked(visit: Visit, zone: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The group as it is kept. Raises ComputeRefusal."""
    template = _reference(visit, str(given.get("instanceTemplate", "")), "resource.instanceTemplate", TEMPLATES.kept)
    policies: Mapping[str, Any] = given.get("resourcePolicies", {})
    policy = ""
    if policies.get("workloadPolicy"):
        policy = _reference(visit, str(policies["workloadPolicy"]), "resource.resourcePolicies", POLICIES.kept)
        if not policy.startswith(f"regions/{visit.region(zone)}/"):
            raise invalid("resource.resourcePolicies.workloadPolicy", "it is in another region than the group")
    base = str(given.get("baseInstanceName", "")) or f"{given['name']}-####"
    if not base.rstrip("#").endswith("-") or not base.endswith("#"):
        raise invalid("resource.baseInstanceName", f"'{base}'. Only sequential names are simulated: NAME-###")
    size = int(given.get("targetSize", -1))
    if size < 0:
        raise required("resource.targetSize")
    group = {
        "form": dict(given) | {"baseInstanceName": base},
        "template": template,
        "policy": policy,
        "base": base,
        "size": size,
        "uid": "",
        "deleting": False,
        "request": visit.request_id(),
        "made": visit.cloud.state.now,
        "number": visit.number(),
    }
    _check_size(visit, group)
    return group


def _check_size(visit: Visit, group: Mapping[str, Any]) -> None:
    """Rules topology_needs_bulk, topology_says_the_size and flex_start_group_begins_empty."""
    properties = visit.kept(TEMPLATES.kept)[group["template"]]["properties"]
    flex = properties.get("scheduling", {}).get("provisioningModel") == "FLEX_START"
    if flex and group["size"] and not visit.query.get("size"):
        raise invalid("resource.targetSize", "a FLEX_START template cannot be used with a target size; resize later")
    if not group["policy"]:
        return
    if group["form"].get("targetSizePolicy", {}).get("mode") != "BULK":
        words = "MIGs with TPU accelerator topology require BULK mode in target size policy"
        raise invalid("resource.targetSizePolicy.mode", words)
    topology = visit.kept(POLICIES.kept)[group["policy"]]["workloadPolicy"]["acceleratorTopology"]
    hosts, rest = divmod(machines.chips_of(topology), machines.machine_of(properties).chips)
    if group["size"] and (rest or hosts != group["size"]):
        raise invalid("resource.targetSize", f"'{group['size']}'. The topology {topology} has {hosts} hosts")


def _reference(visit: Visit, given: str, field: str, kind: str) -> str:
    path = given.partition(f"projects/{visit.project}/")[2]
    if not path:
        raise invalid(field, f"'{given}'. The URL is malformed.")
    if path not in visit.kept(kind):
        raise not_found(f"projects/{visit.project}/{path}")
    return path


def _fill(visit: Visit, zone: str, name: str, group: dict[str, Any], path: str) -> None:
    """Ask for its machines. Without room the group is there and waits. Raises ApiError."""
    call = _call(visit, zone, name, group, path)
    properties = call.extra["compute"]["properties"]
    quota = limits.exceeded(visit.cloud, zone, limits.instance_needs(call.accelerator, call.hosts, properties))
    if quota is not None:
        making.keep_request(visit.cloud, visit.project, call, None, making.quota_error(quota, visit.region(zone)))
        visit.kept("groups")[path] = group
        return
    try:
        group["uid"] = visit.cloud.create(call).uid
    except ApiError as error:
        if error.code not in making.NO_ROOM:
            adopt(visit)  # a call without an answer may have acted
            raise
        making.keep_request(visit.cloud, visit.project, call, None, making.error_of(error, visit.project, zone))
    visit.kept("groups")[path] = group


def _call(visit: Visit, zone: str, name: str, group: dict[str, Any], path: str) -> CreateCall:
    properties = visit.kept(TEMPLATES.kept)[group["template"]]["properties"]
    machine = machines.machine_of(properties, zone, pools=limits.has_pools(visit.cloud, zone))
    market = machines.market_of(properties)
    body = {"kind": "group", "properties": properties, "base": group["base"], "path": path, "group": dict(group)}
    token = visit.request_id()
    return making.call_of(name, zone, machine.generation, group["size"], machine.chips, market, token, body)


def _found(visit: Visit, zone: str, name: str) -> tuple[str, dict[str, Any]]:
    path = f"zones/{zone}/{COLLECTION}/{name}"
    found: dict[str, Any] | None = visit.kept("groups").get(path)
    if found is None:
        raise not_found(f"projects/{visit.project}/{path}")
    return path, found


def _look(visit: Visit, group: Mapping[str, Any]) -> Look | None:
    if making.resource_phase(visit.cloud, group["uid"]) is Phase.ABSENT:
        return None
    return look_of(visit.cloud.state.resources[group["uid"]])


def _instances(visit: Visit, group: Mapping[str, Any]) -> list[dict[str, Any]]:
    look = _look(visit, group)
    return instances.of_look(visit, look) if look is not None else []


def _names(group: Mapping[str, Any]) -> list[str]:
    stem, _, hashes = str(group["base"]).rpartition("-")
    return [f"{stem}-{number + 1:0{len(hashes)}d}" for number in range(group["size"])]


def _error(visit: Visit, zone: str, name: str) -> dict[str, str] | None:
    """Why there are no machines yet: no room, or what was promised did not come."""
    waiting = kept(visit.cloud, "wishes").get(f"{zone}/{name}")
    if waiting is not None:
        error: dict[str, str] = waiting["error"]
        return error
    _, group = _found(visit, zone, name)
    if not group["uid"] or making.was_ready(visit.cloud, group["uid"]):
        return None
    resource = visit.cloud.state.resources[group["uid"]]
    if not any(phase == Phase.FAILED.value for _, phase in resource.past):
        return None
    words = resource.reason or "there is no capacity"
    return {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": words, "at": timestamp(resource.changed)}


def _member(visit: Visit, one: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    action = {"PROVISIONING": "CREATING", "STAGING": "CREATING"}.get(one["status"], "NONE")
    if group["deleting"]:
        action = "DELETING"
    return {
        "name": one["name"],
        "id": one["id"],
        "instance": one["selfLink"],
        "instanceStatus": one["status"],
        "currentAction": action,
        "targetStatus": "DELETED" if group["deleting"] else "RUNNING",
    }


def _shown(visit: Visit, path: str, group: Mapping[str, Any]) -> dict[str, Any]:
    count = len(_instances(visit, group))
    look = _look(visit, group)
    up = count if look is not None and look.phase is Phase.READY else 0
    scope, _, name = path.partition(f"/{COLLECTION}/")
    actions = {"none": up, "creating": group["size"] - up, "deleting": 0}
    if group["deleting"]:
        actions = {"none": 0, "creating": 0, "deleting": count}
    return {
        **group["form"],
        "kind": "compute#instanceGroupManager",
        "id": str(group["number"]),
        "name": name,
        "targetSize": group["size"],
        "zone": operations.link(visit, scope),
        "selfLink": operations.link(visit, path),
        "creationTimestamp": timestamp(group["made"]),
        "currentActions": actions,
        "status": {"isStable": up == group["size"]},
    }
