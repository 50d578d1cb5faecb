"""Refusals in Google's form: google.rpc.Status, its JSON and its HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.simulator.calls import Code

RETRY_AFTER = 1  # seconds, in the header of a throttled call; modelled
_DETAIL = "type.googleapis.com/google.rpc."


@dataclass(frozen=True, slots=True)
class Canonical:
    """One canonical code (google.rpc.Code): its name, its number and its HTTP status."""

    name: str
    number: int
    http: int


CANCELLED = Canonical("CANCELLED", 1, 499)
INVALID_ARGUMENT = Canonical("INVALID_ARGUMENT", 3, 400)
DEADLINE_EXCEEDED = Canonical("DEADLINE_EXCEEDED", 4, 504)
NOT_FOUND = Canonical("NOT_FOUND", 5, 404)
ALREADY_EXISTS = Canonical("ALREADY_EXISTS", 6, 409)
PERMISSION_DENIED = Canonical("PERMISSION_DENIED", 7, 403)
RESOURCE_EXHAUSTED = Canonical("RESOURCE_EXHAUSTED", 8, 429)
FAILED_PRECONDITION = Canonical("FAILED_PRECONDITION", 9, 400)
ABORTED = Canonical("ABORTED", 10, 409)
UNIMPLEMENTED = Canonical("UNIMPLEMENTED", 12, 501)
INTERNAL = Canonical("INTERNAL", 13, 500)
UNAVAILABLE = Canonical("UNAVAILABLE", 14, 503)
UNAUTHENTICATED = Canonical("UNAUTHENTICATED", 16, 401)

OF_CODE: Mapping[Code, Canonical] = {
    Code.ALREADY_EXISTS: ALREADY_EXISTS,
    Code.TOKEN_MISMATCH: INVALID_ARGUMENT,
    Code.TOKEN_SPENT: FAILED_PRECONDITION,
    Code.NOT_FOUND: NOT_FOUND,
    Code.NO_CAPACITY: RESOURCE_EXHAUSTED,
    Code.NOT_OFFERED: INVALID_ARGUMENT,
    Code.QUOTA: RESOURCE_EXHAUSTED,
    Code.DENIED: PERMISSION_DENIED,
    Code.INVALID: INVALID_ARGUMENT,
    Code.WRONG_STATE: FAILED_PRECONDITION,
    Code.THROTTLED: RESOURCE_EXHAUSTED,
    Code.INTERNAL: INTERNAL,
    Code.UNAVAILABLE: UNAVAILABLE,
    Code.TIMEOUT: DEADLINE_EXCEEDED,
}


class Refusal(Exception):
    """A call that the API refuses. details: messages of google.rpc as JSON, each with its @type."""

    def __init__(
        self, canonical: Canonical, words: str, details: tuple[dict[str, Any], ...] = (), retry_after: int = 0
    ) -> None:
        super().__init__(f"{canonical.name}: {words}")
        self.canonical = canonical
        self.words = words
        self.details = details
        self.retry_after = retry_after

    def to_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {
            "code": self.canonical.http,
            "message": self.words,
            "status": self.canonical.name,
        }
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


def invalid(field: str, words: str) -> Refusal:
    """INVALID_ARGUMENT that names the field."""
    violation = {"field": field, "description": words}
    detail = {"@type": f"{_DETAIL}BadRequest", "fieldViolations": [violation]}
    return Refusal(INVALID_ARGUMENT, words, (detail,))


def rpc_status(canonical: Canonical, words: str) -> dict[str, Any]:
    """google.rpc.Status as it stands in an operation or a state: the canonical number, not the HTTP status."""
    return {"code": canonical.number, "message": words}
