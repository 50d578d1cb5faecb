"""Long-running operations: each is done when what it began has come about, by the cloud's own record.

They are kept in the cloud's state, so that a later process finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.google import messages, names
from orch_fronts.google.answering import rpc_error
from orch_fronts.google.status import (
    ABORTED,
    CANCELLED,
    INTERNAL,
    NOT_FOUND,
    Refusal,
    rpc_status,
)
from orch_fronts.google.visit import Visit, timestamp
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.reading import describe_resource as look_of
from orchestrator.simulator.state import Phase, QueuePhase

_KEPT = "google operations"
_EMPTY = "type.googleapis.com/google.protobuf.Empty"
_TARGETS = {"create": Phase.READY, "start": Phase.READY, "stop": Phase.STOPPED}
_AFTER_CREATING = frozenset(QueuePhase) - {QueuePhase.UNSPECIFIED, QueuePhase.CREATING}


def begin(
    visit: Visit,
    zone: str,
    verb: str,
    target: str,
    *,
    uid: str = "",
    mark: int = 0,
    error: Mapping[str, Any] | None = None,
    after: float = 0.0,
) -> dict[str, Any]:
    """A new operation as the API shows it.

    uid: of the resource or the queued request it is about. mark: how many phases that had before. error: how it ends,
    `after` seconds from now; else the record of the resource says how.
    """
    kept = _all(visit)
    number = int(visit.cloud.state.front.setdefault("google numbers", {}).get("operation", 0)) + 1
    visit.cloud.state.front["google numbers"]["operation"] = number
    name = f"operation-{number:06d}"
    kept[name] = {
        "zone": zone,
        "verb": verb,
        "version": visit.version,
        "target": target,
        "uid": uid,
        "mark": mark,
        "at": visit.cloud.state.now,
        "error": dict(error) if error is not None else None,
        "until": visit.cloud.state.now + after,
    }
    return _shown(visit, name, kept[name])


def get(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("operation", name)
    return _shown(visit, name, _found(visit, zone, name))


def version_of(cloud: SimulatedCloud, name: str) -> str:
    """The version of the API that began it; v2 for what is not known. name: whole or its last part."""
    kept = cloud.state.front.get(_KEPT, {}).get(name.rpartition("/")[2], {})
    return str(kept.get("version", messages.V2))


def listing(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("operation", "")
    found = [_shown(visit, name, each) for name, each in _all(visit).items() if each["zone"] == zone]
    return {"operations": found}


def cancel(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    """Noted, and without effect: the service promises no more."""
    visit.check_zone(zone)
    visit.cloud.ask("operation", name)
    _found(visit, zone, name)["cancel"] = True
    return {}


def forget(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    visit.cloud.ask("operation", name)
    _found(visit, zone, name)
    del _all(visit)[name]
    return {}


def _all(visit: Visit) -> dict[str, Any]:
    kept: dict[str, Any] = visit.cloud.state.front.setdefault(_KEPT, {})
    return kept


def _found(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = _all(visit).get(name)
    if found is None or found["zone"] != zone:
        raise Refusal(NOT_FOUND, f"Operation {name} was not found")
    return found


def _shown(visit: Visit, name: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "@type": messages.type_url(visit.version, "OperationMetadata"),
        "createTime": timestamp(kept["at"]),
        "target": kept["target"],
        "verb": kept["verb"],
        "apiVersion": visit.version,
        "cancelRequested": bool(kept.get("cancel")),
    }
    answer: dict[str, Any] = {"name": f"{names.place(visit.project, kept['zone'])}/operations/{name}"}
    outcome = _outcome(visit, kept)
    answer |= {"metadata": metadata, "done": outcome is not None, **(outcome or {})}
    return answer


def _outcome(visit: Visit, kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"response": …} or {"error": …}; None while it goes on."""
    if kept["error"] is not None:
        return {"error": kept["error"]} if visit.cloud.state.now >= kept["until"] else None
    if kept["uid"].startswith("q"):
        return _queue_outcome(visit, kept)
    resource = visit.cloud.state.resources[kept["uid"]]
    verb = kept["verb"]
    if verb == "delete":
        return {"response": {"@type": _EMPTY}} if resource.phase is Phase.ABSENT else None
    if verb == "update":
        return _with_node(visit, kept["uid"])
    target = _TARGETS[verb]
    since = [phase for _, phase in resource.past[kept["mark"] :]]
    if target.value in since or (not since and resource.phase is target):
        return _with_node(visit, kept["uid"])
    if Phase.FAILED.value in since:
        if "capacity" in resource.reason or resource.phase is not Phase.FAILED:
            return {"error": rpc_error("tpu-no-capacity-us-central1-c", zone=resource.zone)}
        return {"error": rpc_status(INTERNAL, resource.reason)}
    if Phase.PREEMPTED.value in since:
        return {"error": rpc_status(ABORTED, "the node was preempted")}
    if resource.phase in (Phase.ENDING, Phase.ABSENT):
        return {"error": rpc_status(CANCELLED, "the node was deleted")}
    return None


def _with_node(visit: Visit, uid: str) -> dict[str, Any]:
    from orch_fronts.google.nodes import shown

    look = look_of(visit.cloud.state.resources[uid])
    if look.phase is Phase.ABSENT:
        return {"response": {"@type": _EMPTY}}  # nothing is left to show
    node = visit.write("Node", shown(visit, look))
    return {"response": {"@type": messages.type_url(visit.version, "Node"), **node}}


def _queue_outcome(visit: Visit, kept: Mapping[str, Any]) -> dict[str, Any] | None:
    from orch_fronts.google.queued import shown

    queued = visit.cloud.state.queued[kept["uid"]]
    if kept["verb"] == "delete":
        return {"response": {"@type": _EMPTY}} if queued.gone else None
    if queued.phase not in _AFTER_CREATING:
        return None
    message = visit.write("QueuedResource", shown(visit, queued))
    return {"response": {"@type": messages.type_url(visit.version, "QueuedResource"), **message}}
