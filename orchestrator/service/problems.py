"""Errors over HTTP: problem details (RFC 9457), with the next step and exit status that the command line shows."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

from orchestrator.errors import (
    AccessError,
    BudgetError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    StorageError,
    UserError,
)
from orchestrator.service.sent_files import MissingTreesError
from orchestrator.service_version import HEADER, is_older, parse_version
from orchestrator.store.failures import StoreError

_DATABASE = re.compile(r"postgresql(?:\+\w+)?://\S+")
_OF_CODES = {"plan-changed": 412, "key-reused": 422, "files-missing": 409, "too-large": 413, "issuer-busy": 503,
             "too-much-computing": 503, "planner-busy": 503, "streams-busy": 503, "old-client": 426}  # fmt: skip
_STATUSES: tuple[tuple[type[OrchError], int], ...] = (
    (UserError, 400),
    (AccessError, 403),
    (BudgetError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (CapacityError, 503),
    (CloudError, 502),
    (StorageError, 502),
    (StoreError, 503),
)


class OldClientError(UserError):
    """The client is older than the route can answer."""

    code = "old-client"


def refuse_old_client(sent: str | None, oldest: str, own: str) -> None:
    """Refuse a client whose version is too old.

    Args:
        sent: The version in its header; None for a program that sends none, which is answered.
        oldest: The oldest that is answered.
        own: The version of the service.

    Raises:
        OldClientError: It is too old.
        UserError: The header is no version.
    """
    if sent is None:
        return
    if parse_version(sent) is None:
        raise UserError(f"`{HEADER}: {sent[:40]}` is not a version", "it is that of the client", f"{HEADER}: {own}")
    if is_older(sent, oldest):
        why = f"the service has orch {own}, and answers this to {oldest} or newer"
        raise OldClientError(
            f"orch {sent} is too old for this service", why, f"install orch {own} on this computer (README)"
        )


def find_http_status(error: OrchError) -> int:
    """Return the HTTP status of an error."""
    if error.code in _OF_CODES:
        return _OF_CODES[error.code]
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def hide_database(error: OrchError) -> OrchError:
    """Return an error without the address of the database, which is no concern of members."""
    if not isinstance(error, StoreError):
        return error
    shown = copy(error)
    for part in ("what", "why", "next_step"):
        setattr(shown, part, _DATABASE.sub("of the service", str(getattr(error, part))))
    return shown


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
        **({"trees": list(error.trees)} if isinstance(error, MissingTreesError) else {}),
    }
