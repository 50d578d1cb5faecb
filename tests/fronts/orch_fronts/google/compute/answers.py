"""Refusals in the form of the Compute Engine API: an HTTP status and a reason, without google.rpc.Status.

The form and the reasons are those of "Troubleshooting API errors" and "Standard error responses" of the Compute Engine
documentation (docs.cloud.google.com/compute/docs/api), read November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orch_fronts.google import status
from orch_fronts.google.status import Canonical, Refusal
from orchestrator.simulator.calls import ApiError, Code

POOL_EXHAUSTED = "ZONE_RESOURCE_POOL_EXHAUSTED"
QUOTA_EXCEEDED = "QUOTA_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Reason:
    """domain, reason: of the first entry of `errors`."""

    canonical: Canonical
    reason: str
    domain: str = "global"


_OF_CODE: Mapping[Code, Reason] = {
    Code.ALREADY_EXISTS: Reason(status.ALREADY_EXISTS, "alreadyExists"),
    Code.TOKEN_MISMATCH: Reason(status.INVALID_ARGUMENT, "invalid"),
    Code.TOKEN_SPENT: Reason(status.ALREADY_EXISTS, "alreadyExists"),
    Code.NOT_FOUND: Reason(status.NOT_FOUND, "notFound"),
    Code.NO_CAPACITY: Reason(status.UNAVAILABLE, "backendError"),
    Code.NOT_OFFERED: Reason(status.INVALID_ARGUMENT, "invalid"),
    Code.QUOTA: Reason(status.PERMISSION_DENIED, "quotaExceeded", "usageLimits"),
    Code.DENIED: Reason(status.PERMISSION_DENIED, "forbidden"),
    Code.INVALID: Reason(status.INVALID_ARGUMENT, "invalid"),
    Code.WRONG_STATE: Reason(status.FAILED_PRECONDITION, "resourceNotReady"),
    Code.THROTTLED: Reason(status.PERMISSION_DENIED, "rateLimitExceeded", "usageLimits"),
    Code.INTERNAL: Reason(status.INTERNAL, "internalError"),
    Code.UNAVAILABLE: Reason(status.UNAVAILABLE, "backendError"),
    Code.TIMEOUT: Reason(status.DEADLINE_EXCEEDED, "deadlineExceeded"),
}


class ComputeRefusal(Refusal):
    def __init__(self, reason: Reason, words: str, retry_after: int = 0) -> None:
        super().__init__(reason.canonical, words, retry_after=retry_after)
        self.reason = reason

    def to_json(self) -> dict[str, Any]:
        one = {"message": self.words, "domain": self.reason.domain, "reason": self.reason.reason}
        return {"error": {"code": self.canonical.http, "message": self.words, "errors": [one]}}


def refused(error: ApiError) -> ComputeRefusal:
    """An answer of the neutral cloud in Compute Engine's words."""
    throttled = error.code is Code.THROTTLED
    words = "Rate Limit Exceeded" if throttled else error.words
    return ComputeRefusal(_OF_CODE[error.code], words, status.RETRY_AFTER if throttled else 0)


def in_form(refusal: Refusal) -> ComputeRefusal:
    """A refusal of a shared helper in this API's form."""
    if isinstance(refusal, ComputeRefusal):
        return refusal
    return ComputeRefusal(Reason(refusal.canonical, "invalid"), refusal.words, refusal.retry_after)


def not_found(path: str) -> ComputeRefusal:
    return ComputeRefusal(_OF_CODE[Code.NOT_FOUND], f"The resource '{path}' was not found")


def taken(path: str) -> ComputeRefusal:
    return ComputeRefusal(_OF_CODE[Code.ALREADY_EXISTS], f"The resource '{path}' already exists")


def invalid(field: str, words: str) -> ComputeRefusal:
    return ComputeRefusal(_OF_CODE[Code.INVALID], f"Invalid value for field '{field}': {words}")


def required(field: str) -> ComputeRefusal:
    return ComputeRefusal(Reason(status.INVALID_ARGUMENT, "required"), f"Required field '{field}' not specified")


def in_use(path: str, by: str) -> ComputeRefusal:
    """Rule used_resource_cannot_be_deleted."""
    words = f"The {path} resource is already being used by '{by}'"
    return ComputeRefusal(Reason(status.INVALID_ARGUMENT, "resourceInUseByAnotherResource"), words)


def wrong_state(words: str) -> ComputeRefusal:
    return ComputeRefusal(_OF_CODE[Code.WRONG_STATE], words)


def denied(words: str) -> ComputeRefusal:
    return ComputeRefusal(_OF_CODE[Code.DENIED], words)


def operation_error(code: str, words: str, http: int) -> dict[str, Any]:
    """The part of an operation that says why it failed."""
    return {
        "error": {"errors": [{"code": code, "message": words}]},
        "httpErrorStatusCode": http,
        "httpErrorMessage": {403: "FORBIDDEN", 503: "SERVICE UNAVAILABLE"}.get(http, "BAD REQUEST"),
    }
