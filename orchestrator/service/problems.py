"""Errors over HTTP: problem details (RFC 9457), with the next step and exit status that the command line shows."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    StorageError,
    UserError,
)
from orchestrator.store.failures import StoreError

_OF_CODES = {"plan-changed": 412, "key-reused": 422}
_STATUSES: tuple[tuple[type[OrchError], int], ...] = (
    (UserError, 400),
    (AccessError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (CapacityError, 503),
    (CloudError, 502),
    (StorageError, 502),
    (StoreError, 503),
)


def find_http_status(error: OrchError) -> int:
    """Return the HTTP status of an error."""
    if error.code in _OF_CODES:
        return _OF_CODES[error.code]
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def describe_problem(error: OrchError, status: int, request: str) -> dict[str, Any]:
    """Return an error as problem details.

    Args:
        error: The error.
        status: The HTTP status.
        request: The id of the request, to find it in the log.
    """
    return {
        "type": f"about:blank#{error.code}",
        "title": error.what,
        "detail": error.why,
        "status": status,
        "instance": request,
        "code": error.code,
        "exit_status": int(error.exit_status),
        "next_step": error.next_step,
        "lines": error.lines(),
    }
