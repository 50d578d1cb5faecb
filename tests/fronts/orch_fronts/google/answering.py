"""Google's own answers (orch_fronts/answers) as refusals, and as the ends of operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.answers import Said, say
from orch_fronts.google import status
from orch_fronts.google.compute.answers import ComputeRefusal, Reason, operation_error
from orch_fronts.google.status import Canonical, Refusal
from orchestrator.simulator.calls import ApiError, Code

_CANONICAL: tuple[Canonical, ...] = (
    *(status.INVALID_ARGUMENT, status.NOT_FOUND, status.ALREADY_EXISTS, status.PERMISSION_DENIED),
    *(status.RESOURCE_EXHAUSTED, status.FAILED_PRECONDITION, status.ABORTED, status.CANCELLED, status.INTERNAL),
    *(status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.UNAUTHENTICATED, status.UNIMPLEMENTED),
)
_TYPE = "type.googleapis.com/google.rpc."
_IN_OPERATIONS = {"operation": "tpu", "compute-operation": "compute"}


def refusal(name: str, **values: object) -> Refusal:
    """Return an answer as what the request itself is refused with."""
    said = say(name, **values)
    entry = said.entry
    if entry.form in ("compute", "compute-operation"):
        return ComputeRefusal(Reason(_of_http(entry.http or 400), entry.reason or "invalid"), said.text)
    if entry.form == "operation":
        return Refusal(_of_number(int(entry.code)), said.text)
    named = next((one for one in _CANONICAL if one.name == entry.status), None)
    return Refusal(named or _of_http(entry.http), said.text, tuple(_detail(one) for one in said.details))


def ends_operation(name: str, api: str) -> bool:
    """Return whether an API (tpu or compute) gives this answer in an operation, after it has accepted the request."""
    return _IN_OPERATIONS.get(say(name).entry.form) == api


def rpc_error(name: str, **values: object) -> dict[str, Any]:
    """Return an answer as the google.rpc.Status of an operation of the TPU API."""
    said = say(name, **values)
    number = int(said.entry.code) if said.entry.form == "operation" else _of_http(said.entry.http).number
    return {"code": number, "message": said.text}


def compute_error(name: str, **values: object) -> dict[str, Any]:
    """Return an answer as the part of an operation of Compute Engine that says why it failed."""
    said = say(name, **values)
    return operation_error(str(said.entry.code), said.text, _http(said))


def _http(said: Said) -> int:
    return said.entry.http or (403 if "QUOTA" in str(said.entry.code) else 503)


def _of_http(http: int) -> Canonical:
    return next((one for one in _CANONICAL if one.http == http), Canonical("UNKNOWN", 2, http))


def _of_number(number: int) -> Canonical:
    return next((one for one in _CANONICAL if one.number == number), status.INTERNAL)


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"@type": _TYPE + str(given["type"]), **{key: value for key, value in given.items() if key != "type"}}


def refusal_of(error: ApiError, zone: str = "") -> Refusal:
    """Return a refusal of the simulated cloud in Google's words."""
    if error.answer:
        return refusal(error.answer)
    canonical = status.OF_CODE[error.code]
    match error.code:
        case Code.THROTTLED:
            info = {"@type": f"{_TYPE}ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com"}
            wait = {"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{status.RETRY_AFTER}s"}
            return Refusal(canonical, error.words, (info, wait), status.RETRY_AFTER)
        case Code.QUOTA:
            violation = {"subject": "project", "description": error.words}
            detail = {"@type": f"{_TYPE}QuotaFailure", "violations": [violation]}
            return Refusal(canonical, f"Quota limit has been exceeded: {error.words}", (detail,))
        case Code.NO_CAPACITY:
            return refusal("tpu-no-capacity-as-http", zone=zone)
        case Code.NOT_OFFERED:
            kind = error.words.removeprefix(f"{zone} has no ").partition(" ")[0]
            return refusal("tpu-type-not-in-zonal-configurations", type=kind, zone=zone)
        case _:
            return Refusal(canonical, error.words)
