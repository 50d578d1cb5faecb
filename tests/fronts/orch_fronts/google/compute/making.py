"""Getting machines: at once, or as a wish that is tried again until there is room or its time is over.

A wish is kept for a group, which goes on trying (rule group_waits_for_all_its_machines), and for a flex-start instance,
which waits for as long as it says (rule flex_start_waits).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from orch_fronts.answers import Said, say
from orch_fronts.google import nodes
from orch_fronts.google.compute.answers import QUOTA_EXCEEDED
from orch_fronts.google.compute.visit import kept
from orch_fronts.google.tables import RegionalQuota
from orch_fronts.google.visit import timestamp
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Deed
from orchestrator.simulator.state import Phase

TRY_AGAIN = 10.0  # seconds; modelled
LINGER = 30.0  # seconds that an instance which was taken is shown as STOPPING before it is deleted; modelled
NO_ROOM = frozenset({Code.NO_CAPACITY, Code.QUOTA})


def call_of(
    name: str, zone: str, generation: str, hosts: int, chips: int, market: str, token: str, body: dict[str, Any]
) -> CreateCall:
    """body: {"kind": "instance" or "group", "properties": …} and what else the shown form needs."""
    properties = body["properties"]
    items = properties.get("metadata", {}).get("items", ())
    scheduling = properties.get("scheduling", {})
    return CreateCall(
        name=name,
        zone=zone,
        accelerator=generation,
        hosts=hosts,
        token=token,
        chips_per_host=chips,
        market=market,
        labels=dict(properties.get("labels", {})),
        extra={
            "node": {"metadata": {item["key"]: item.get("value", "") for item in items}},  # where keys.with_keys looks
            "compute": body,
            "run_seconds": float(scheduling.get("maxRunDuration", {}).get("seconds", 0)),
        },
    )


def keep_request(
    cloud: SimulatedCloud, project: str, call: CreateCall, until: float | None, error: dict[str, str]
) -> None:
    """Keep a call that found no room. until: when it is given up, None = never."""
    fields = asdict(replace(call, labels=dict(call.labels), extra=dict(call.extra)))
    kept(cloud, "wishes")[f"{call.zone}/{call.name}"] = {
        "project": project,
        "call": fields,
        "until": until,
        "next": cloud.state.now + TRY_AGAIN,
        "since": cloud.state.now,
        "error": error | {"at": timestamp(cloud.state.now)},
        "number": len(kept(cloud, "wishes")) + 1,
    }


def error_of(error: ApiError, project: str, zone: str) -> dict[str, str]:
    """How an instance or a group says why there is nothing yet."""
    if error.code is Code.QUOTA:
        return {"code": QUOTA_EXCEEDED, "message": f"Quota exceeded: {error.words}"}
    return _of_answer(say("gce-pool-exhausted", project=project, zone=zone))


def quota_error(quota: RegionalQuota, region: str) -> dict[str, str]:
    """How an instance or a group says that a limit of its region is reached."""
    if quota.everywhere:
        return _of_answer(say("gce-quota-gpus-all-regions", quota=quota.id, limit=f"{quota.value}.0"))
    return _of_answer(say("gce-quota-addresses", quota=quota.id, limit=f"{quota.value}.0", region=region))


def _of_answer(said: Said) -> dict[str, str]:
    return {"code": str(said.entry.code), "message": said.text}


def pass_time(cloud: SimulatedCloud) -> None:
    """What happens by itself to what Compute Engine has made."""
    for look in cloud.live():
        if "compute" in look.extra:
            _age(cloud, look)
    for key, each in list(kept(cloud, "wishes").items()):
        if each["until"] is not None and cloud.state.now >= each["until"]:
            del kept(cloud, "wishes")[key]
        elif cloud.state.now >= each["next"]:
            _try_again(cloud, key, each)
    for path, group in list(kept(cloud, "groups").items()):
        if group["deleting"] and resource_phase(cloud, group["uid"]) is Phase.ABSENT:
            del kept(cloud, "groups")[path]


def resource_phase(cloud: SimulatedCloud, uid: str) -> Phase:
    """ABSENT for what was never made."""
    return cloud.state.resources[uid].phase if uid else Phase.ABSENT


def was_ready(cloud: SimulatedCloud, uid: str) -> bool:
    return any(phase == Phase.READY.value for _, phase in cloud.state.resources[uid].past)


def _age(cloud: SimulatedCloud, look: Look) -> None:
    resource = cloud.state.resources[look.uid]
    if look.phase is Phase.READY and nodes.is_over(cloud, look):
        cloud.do(look.name, Deed.VANISH)
    elif look.phase is Phase.PREEMPTED and deletes(look) and cloud.state.now >= resource.changed + LINGER:
        cloud.do(look.name, Deed.VANISH)  # rule preempted_instance_is_deleted
    elif look.phase is Phase.FAILED and not was_ready(cloud, look.uid):
        cloud.do(look.name, Deed.VANISH)  # an insert that fails leaves nothing


def deletes(look: Look) -> bool:
    scheduling = look.extra["compute"]["properties"].get("scheduling", {})
    return bool(scheduling.get("instanceTerminationAction") == "DELETE")


def _try_again(cloud: SimulatedCloud, key: str, each: dict[str, Any]) -> None:
    each["next"] = cloud.state.now + TRY_AGAIN
    try:
        look = cloud.create(CreateCall(**each["call"]))
    except ApiError as error:
        if error.code in NO_ROOM:
            each["error"] = error_of(error, each["project"], each["call"]["zone"]) | {"at": timestamp(cloud.state.now)}
        return
    del kept(cloud, "wishes")[key]
    group = kept(cloud, "groups").get(f"zones/{look.zone}/instanceGroupManagers/{look.name}")
    if group is not None:
        group["uid"] = look.uid
