"""Operations of Compute Engine: of a zone, a region or the whole project; done when what they began has come about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.google.compute.answers import POOL_EXHAUSTED, not_found, operation_error
from orch_fronts.google.compute.visit import Visit
from orch_fronts.google.visit import timestamp
from orchestrator.simulator.state import Phase

ROOT = "https://www.googleapis.com/compute/v1/"
GLOBAL = "global"
_TARGETS = {"insert": Phase.READY, "start": Phase.READY, "stop": Phase.STOPPED, "delete": Phase.ABSENT}
_LOST = frozenset({Phase.FAILED.value, Phase.PREEMPTED.value, Phase.ENDING.value, Phase.ABSENT.value})


def begin(
    visit: Visit,
    scope: str,
    kind: str,
    target: str,
    *,
    uid: str = "",
    mark: int = 0,
    error: Mapping[str, Any] | None = None,
    after: float = 0.0,
) -> dict[str, Any]:
    """A new operation as the API shows it.

    scope: "global", "zones/Z" or "regions/R". target: path below projects/P/. uid: of the resource whose record says
    when it is done, "" when it is done at once. mark: how many phases that had before. error: how it ends, `after`
    seconds from now.
    """
    name = f"operation-{visit.number():06d}"
    request = visit.request_id()
    visit.kept("operations")[name] = {
        "scope": scope,
        "type": kind,
        "target": target,
        "uid": uid,
        "mark": mark,
        "at": visit.cloud.state.now,
        "error": dict(error) if error is not None else None,
        "until": visit.cloud.state.now + after,
        "request": request,
    }
    if request:
        visit.kept("requests")[request] = name
    return _shown(visit, name)


def repeated(visit: Visit) -> dict[str, Any] | None:
    """The operation of an earlier call with the same request id (rule request_id_makes_a_call_repeatable)."""
    name = visit.kept("requests").get(visit.request_id() or "-")
    return _shown(visit, name) if name is not None else None


def get(visit: Visit, scope: str, name: str) -> dict[str, Any]:
    visit.cloud.ask("operation", name)
    found = visit.kept("operations").get(name)
    if found is None or found["scope"] != scope:
        raise not_found(f"projects/{visit.project}/{scope}/operations/{name}")
    return _shown(visit, name)


def link(visit: Visit, path: str) -> str:
    return f"{ROOT}projects/{visit.project}/{path}"


def _shown(visit: Visit, name: str) -> dict[str, Any]:
    kept: Mapping[str, Any] = visit.kept("operations")[name]
    done, error = _outcome(visit, kept)
    shown: dict[str, Any] = {
        "kind": "compute#operation",
        "id": str(int(name.rpartition("-")[2])),
        "name": name,
        "operationType": kept["type"],
        "targetLink": link(visit, kept["target"]),
        "status": "DONE" if done else "RUNNING",
        "progress": 100 if done else 0,
        "insertTime": timestamp(kept["at"]),
        "selfLink": link(visit, f"{kept['scope']}/operations/{name}"),
        **error,
    }
    place, _, where = kept["scope"].partition("/")
    if where:
        shown[place.removesuffix("s")] = link(visit, kept["scope"])
    if kept["request"]:
        shown["clientOperationId"] = kept["request"]
    return shown


def _outcome(visit: Visit, kept: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
    if kept["error"] is not None:
        return visit.cloud.state.now >= kept["until"], (kept["error"] if visit.cloud.state.now >= kept["until"] else {})
    if not kept["uid"]:
        return True, {}
    resource = visit.cloud.state.resources[kept["uid"]]
    target = _TARGETS[kept["type"]]
    since = [phase for _, phase in resource.past[kept["mark"] :]]
    if target.value in since or (not since and resource.phase is target):
        return True, {}
    if kept["type"] != "delete" and _LOST & set(since):
        words = resource.reason or f"the instance is {resource.phase}"
        code = POOL_EXHAUSTED if "capacity" in words else "RESOURCE_OPERATION_RATE_EXCEEDED"
        return True, operation_error(code, words, 503)
    return False, {}
