"""What an answer of the TPU API means: one table, from code and words to what we do and what the user can do.

Codes: google.rpc.Code and its HTTP mapping (google/rpc/code.proto). The words are those that Google's services use
(Cloud TPU documentation, "Troubleshooting", 2025; error threads of public tools, 2023 to 2026). RESOURCE_EXHAUSTED is
told apart by its words alone: no machines, no quota, or too many calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    QuotaError,
    UserError,
)
from orchestrator.messages import to_one_line
from orchestrator.providers.google.session import how_to_log_in
from orchestrator.retries import CLOUD_READ

LONGEST_PAUSE = 20.0  # seconds; a longer Retry-After is left to the engine
_Answer = TypeVar("_Answer")


class Kind(StrEnum):
    CAPACITY = "no machines"
    NOT_OFFERED = "not offered there"  # this type, in this zone, to this project: another zone may have it
    QUOTA = "no quota"
    PERMISSION = "not allowed"
    CREDENTIALS = "not logged in"
    API_DISABLED = "API not enabled"
    NOT_FOUND = "not found"
    TAKEN = "exists already"
    INVALID = "bad request"
    WRONG_STATE = "not in this state"
    THROTTLED = "too many calls"
    UNAVAILABLE = "not available"  # the service says so: whether it acted is not known
    NO_ANSWER = "no answer"  # whether it acted is not known

    @property
    def may_have_acted(self) -> bool:
        return self in (Kind.UNAVAILABLE, Kind.NO_ANSWER)

    @property
    def worth_asking_again(self) -> bool:
        return self in (Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER)


@dataclass(frozen=True, slots=True)
class Answer:
    """An error as it came: its kind, Google's words on one line, and the seconds it asks us to wait."""

    kind: Kind
    words: str
    wait: float | None = None


_BY_CODE = {
    1: Kind.NO_ANSWER,  # CANCELLED
    2: Kind.UNAVAILABLE,  # UNKNOWN
    3: Kind.INVALID,
    4: Kind.NO_ANSWER,  # DEADLINE_EXCEEDED
    5: Kind.NOT_FOUND,
    6: Kind.TAKEN,
    7: Kind.PERMISSION,
    8: Kind.CAPACITY,  # RESOURCE_EXHAUSTED, unless its words say otherwise
    9: Kind.WRONG_STATE,
    10: Kind.UNAVAILABLE,  # ABORTED
    11: Kind.INVALID,
    12: Kind.INVALID,  # UNIMPLEMENTED
    13: Kind.UNAVAILABLE,  # INTERNAL
    14: Kind.UNAVAILABLE,
    15: Kind.UNAVAILABLE,
    16: Kind.CREDENTIALS,
}
_BY_NAME = {
    "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
}  # fmt: skip
_BY_HTTP = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 6, 412: 9, 429: 8, 499: 1, 500: 13, 501: 12, 503: 14, 504: 4}
_DISABLED = re.compile(
    r"SERVICE_DISABLED|has not been used in project|API is not enabled|it is disabled", re.IGNORECASE
)
_RATE = re.compile(r"per (?:minute|second|100 seconds)|rate ?limit|too many requests", re.IGNORECASE)
_QUOTA = re.compile(r"quota|limit .{0,40}exceeded", re.IGNORECASE)
_QUOTA_EXCEEDED = re.compile(r"quota.{0,80}exceeded|quotaExceeded", re.IGNORECASE)
_CLOSED = re.compile(r"location .{0,60}not found or access is unauthorized", re.IGNORECASE)
_NOT_OFFERED = re.compile(
    r"accelerator ?types?\b.{0,120}(?:not found|not available|not supported|does not exist|not offered)"
    r"|not have permission to submit requests for accelerator type",
    re.IGNORECASE,
)
_CAPACITY = re.compile(
    r"no more capacity|stock ?out|RESOURCE_POOL_EXHAUSTED|insufficient capacity|not enough (?:resources|capacity)"
    r"|no available resources|lack of capacity|not have enough resources",
    re.IGNORECASE,
)


def by_code(code: int, words: str) -> Kind:
    """The kind of a google.rpc.Code with these words. Raises nothing; an unknown code is UNAVAILABLE."""
    kind = _BY_CODE.get(code, Kind.UNAVAILABLE)
    if kind in (Kind.INVALID, Kind.NOT_FOUND, Kind.PERMISSION) and (
        _NOT_OFFERED.search(words) or _CLOSED.search(words)
    ):
        return Kind.NOT_OFFERED
    if kind is Kind.PERMISSION and _DISABLED.search(words):
        return Kind.API_DISABLED
    if _CAPACITY.search(words) and kind in (Kind.CAPACITY, Kind.WRONG_STATE, Kind.UNAVAILABLE):
        return Kind.CAPACITY
    if kind in (Kind.CAPACITY, Kind.PERMISSION) and _RATE.search(words):
        return Kind.THROTTLED
    if kind is Kind.CAPACITY and _QUOTA.search(words):
        return Kind.QUOTA
    if kind is Kind.PERMISSION and _QUOTA_EXCEEDED.search(words):  # but not: "requires a quota project"
        return Kind.QUOTA
    return kind


def understood(error: Exception) -> Answer | None:
    """What an exception of a client library says; None for one that is no answer of a service (a bug of ours)."""
    from http.client import HTTPException

    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]  # the library ships no types
    from requests.exceptions import RequestException

    if isinstance(error, GoogleAPICallError):
        return _answer(error)
    if type(error).__module__.partition(".")[0] in ("googleapiclient", "httplib2"):
        return _of_discovery(error)
    broken = TransportError | RequestException | HTTPException | ParseError | TimeoutError | ConnectionError
    if isinstance(error, broken):
        return Answer(Kind.NO_ANSWER, to_one_line(str(error) or type(error).__name__))
    if isinstance(error, GoogleAuthError):
        return Answer(Kind.CREDENTIALS, to_one_line(str(error)))
    return None


def explain(verb: str, name: str, answer: Answer, project: str = "") -> OrchError:
    """The error for the user, with what to do next."""
    what, why = f"{verb} {name}".strip() + " was refused by Google", f"{answer.kind}: {answer.words}"
    where = f" --project={project}" if project else ""
    match answer.kind:
        case Kind.NOT_OFFERED if verb != "create":
            return AccessError(
                what, why, f"orch check gcp{where}   says what is missing; docs/iam has a role with just that"
            )
        case Kind.CAPACITY | Kind.NOT_OFFERED:
            return CapacityError(what, why, "try another zone, spot or a queued resource, or later")
        case Kind.QUOTA:
            return QuotaError(what, why, "ask for more in the console, IAM & Admin > Quotas, or take fewer chips")
        case Kind.PERMISSION:
            return AccessError(
                what, why, f"orch check gcp{where}   says what is missing; docs/iam has a role with just that"
            )
        case Kind.CREDENTIALS:
            return AccessError(what, why, how_to_log_in())
        case Kind.API_DISABLED:
            return AccessError(what, why, f"gcloud services enable tpu.googleapis.com{where}   then wait a minute")
        case Kind.INVALID:
            return UserError(what, why, "orch accelerators   shows types and zones; docs/google.md the options")
        case Kind.NOT_FOUND if verb == "create":
            return UserError(what, why, "check the zone, the network and the reservation that the task names")
        case Kind.NOT_FOUND:
            return NotFoundError(what, why, "orch status")
        case Kind.TAKEN:
            return ConflictError(what, why, "take another name: -c NAME")
        case Kind.WRONG_STATE | Kind.THROTTLED | Kind.UNAVAILABLE:
            return CloudError(what, why, "run the same command again")
        case Kind.NO_ANSWER:
            what = f"{verb} {name}".strip() + ": no answer from Google"
            return CloudError(what, f"it is not known whether it acted ({answer.words})", "run the same command again")


def reading(call: Callable[[], _Answer]) -> _Answer:
    """Do a read, again when that may help. Never for what changes something. Raises the last exception."""
    return CLOUD_READ.run(call, retry=_again, requested_pause=_retry_info, sleep=_sleep)


def _again(error: BaseException) -> bool:
    answer = understood(error) if isinstance(error, Exception) else None
    return answer is not None and answer.kind.worth_asking_again and (answer.wait or 0.0) <= LONGEST_PAUSE


def _retry_info(error: BaseException) -> float | None:
    """Return the seconds that the service asks to wait, or None."""
    answer = understood(error) if isinstance(error, Exception) else None
    return None if answer is None else answer.wait


def _sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def _answer(error: Any) -> Answer:
    grpc_code = getattr(error, "grpc_status_code", None)
    http = int(error.code or 0)
    code = int(grpc_code.value[0]) if grpc_code is not None else _BY_HTTP.get(http, 2)
    details = " ".join(str(getattr(error, name, "") or "") for name in ("reason", "domain"))
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    return _told(http, code, error.message or str(error), details, _retry_after(headers))


def _of_discovery(error: Exception) -> Answer | None:
    """An exception of google-api-python-client, or of the httplib2 below it."""
    from googleapiclient.errors import HttpError  # type: ignore[import-untyped]  # the library ships no types
    from httplib2 import HttpLib2Error  # type: ignore[import-untyped]  # the library ships no types

    given: Any = error
    if isinstance(error, HttpError):
        http, said = int(given.resp.status), _said(given.content)
        code = _BY_NAME.get(str(said.get("status", "")), _BY_HTTP.get(http, 2))
        details = " ".join(str(part.get("reason", "")) for key in ("details", "errors") for part in said.get(key) or ())
        return _told(http, code, str(said.get("message") or given), details, _retry_after(given.resp))
    if isinstance(error, HttpLib2Error):
        return Answer(Kind.NO_ANSWER, to_one_line(str(error) or type(error).__name__))
    return None


def _said(content: bytes) -> dict[str, Any]:
    """The error in the body of an answer, {} when it is in another form."""
    try:
        whole: object = json.loads(content)
    except ValueError:
        return {}
    said: object = cast(dict[str, object], whole).get("error") if isinstance(whole, dict) else None
    return cast(dict[str, Any], said) if isinstance(said, dict) else {}


def _told(http: int, code: int, words: str, details: str, wait: float | None) -> Answer:
    if http == 429:
        code = 8  # the class of the exception says "too many requests" for all of them
    words = to_one_line(words)
    kind = by_code(code, f"{words} {details}")
    if kind is Kind.CAPACITY and wait is not None and not _CAPACITY.search(words):
        kind = Kind.THROTTLED  # whoever says when to come back means calls, not machines
    return Answer(kind, words, wait)


def _retry_after(headers: Any) -> float | None:
    word = str(headers.get("Retry-After") or headers.get("retry-after") or "").strip()
    return float(word) if re.fullmatch(r"[0-9]{1,6}", word) else None
