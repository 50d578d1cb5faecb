"""What an answer of the TPU API means: one table, from code and words to what we do and what the user can do.

Codes: google.rpc.Code and its HTTP mapping (google/rpc/code.proto). The words are those that Google's services use
(Cloud TPU documentation, "Troubleshooting", 2025; error threads of public tools, 2023 to 2026). RESOURCE_EXHAUSTED is
told apart by its words alone: no machines, no quota, or too many calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from orchestrator.errors import OrchError
from orchestrator.messages import to_one_line
from orchestrator.providers.core.faults import Answer, ErrorTable, Kind, load_error_table
from orchestrator.providers.google.session import how_to_log_in
from orchestrator.retries import CLOUD_READ

LONGEST_ANSWER = 2000  # characters of an answer that a user sees: refusals of Google name links and constraints
LONGEST_PAUSE = 20.0  # seconds; a longer Retry-After is left to the engine
_Answer = TypeVar("_Answer")


_BY_NAME = {
    "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
}  # fmt: skip
_NAMES = {number: name for name, number in _BY_NAME.items()}
_BY_HTTP = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 6, 412: 9, 429: 8, 499: 1, 500: 13, 501: 12, 503: 14, 504: 4}


@cache
def error_table() -> ErrorTable:
    """Return the errors of Google's APIs."""
    return load_error_table(__package__ or "")


def by_code(code: int, words: str) -> Kind:
    """Return the kind of a google.rpc.Code with these words; that of an unknown code is UNAVAILABLE."""
    return error_table().classify(_NAMES.get(code, ""), words, unknown=Kind.UNAVAILABLE)


def read_status(code: int, words: str) -> Answer:
    """Return what a google.rpc.Status says, such as the error of a long-running operation."""
    return _told(0, code, words, frozenset(), "", None)


def read_operation_error(code: str, words: str) -> Answer:
    """Return what an error of a Compute Engine operation says: its own code, such as QUOTA_EXCEEDED, and its text."""
    text = f"{code} {words}"
    row = error_table().find("INTERNAL", text, frozenset({code})) or error_table().find("", text)
    answer = Answer(kind=Kind.UNKNOWN, words=to_one_line(words or code, LONGEST_ANSWER))
    return error_table().add_row(answer, None if row is None or row.kind is Kind.UNAVAILABLE else row, text)


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
        return Answer(kind=Kind.NO_ANSWER, words=to_one_line(str(error) or type(error).__name__))
    if isinstance(error, GoogleAuthError) and getattr(error, "retryable", False):  # the token server is busy
        return Answer(kind=Kind.NO_ANSWER, words=to_one_line(str(error)))
    if isinstance(error, GoogleAuthError):
        return Answer(kind=Kind.CREDENTIALS, words=to_one_line(str(error)))
    return None


def explain(verb: str, name: str, answer: Answer, project: str = "") -> OrchError:
    """Return the error for the user, with what to do next."""
    where = f" --project={project}" if project else ""
    login = how_to_log_in() if answer.kind is Kind.CREDENTIALS else ""
    return error_table().explain(verb, name, answer, login, where=where)


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
    """An exception of google-api-core, by gRPC or by REST. The body of a REST answer names the status itself."""
    response: Any = getattr(error, "response", None)
    said = _said(getattr(response, "content", b"") or b"")
    grpc_code = getattr(error, "grpc_status_code", None)
    http = int(error.code or 0)
    usual = int(grpc_code.value[0]) if grpc_code is not None else _BY_HTTP.get(http, 2)
    details: list[Any] = list(said.get("details") or getattr(error, "details", None) or ())
    info: Any = getattr(error, "error_info", None)
    reasons, more = _read_details([*details, info] if info is not None else details)
    words = str(said.get("message") or error.message or error)
    code = _BY_NAME.get(str(said.get("status", "")), usual)
    return _told(http, code, words, reasons, more, _retry_after(getattr(response, "headers", None) or {}))


def _of_discovery(error: Exception) -> Answer | None:
    """An exception of google-api-python-client, or of the httplib2 below it."""
    from googleapiclient.errors import HttpError  # type: ignore[import-untyped]  # the library ships no types
    from httplib2 import HttpLib2Error  # type: ignore[import-untyped]  # the library ships no types

    given: Any = error
    if isinstance(error, HttpError):
        http, said = int(given.resp.status), _said(given.content)
        code = _BY_NAME.get(str(said.get("status", "")), _BY_HTTP.get(http, 2))
        reasons, more = _read_details([*(said.get("details") or ()), *(said.get("errors") or ())])
        return _told(http, code, str(said.get("message") or given), reasons, more, _retry_after(given.resp))
    if isinstance(error, HttpLib2Error):
        return Answer(kind=Kind.NO_ANSWER, words=to_one_line(str(error) or type(error).__name__))
    return None


def _said(content: bytes) -> dict[str, Any]:
    """The error in the body of an answer, {} when it is in another form."""
    try:
        whole: object = json.loads(content)
    except ValueError:
        return {}
    said: object = cast(dict[str, object], whole).get("error") if isinstance(whole, dict) else None
    return cast(dict[str, Any], said) if isinstance(said, dict) else {}


def _read_details(details: Iterable[Any]) -> tuple[frozenset[str], str]:
    """Return the reasons and the descriptions in the details of an answer, which are JSON or messages of google.rpc."""
    reasons: set[str] = set()
    words: list[str] = []
    for detail in details:
        reasons |= {_field(detail, "reason"), _name_type(detail)}
        given: Any = detail
        violations: Any = given.get("violations") if isinstance(detail, dict) else getattr(given, "violations", ())
        for violation in violations or ():
            reasons.add(_field(violation, "type"))
            words.append(_field(violation, "description"))
    return frozenset(filter(None, reasons)), " ".join(filter(None, words))


def _name_type(detail: Any) -> str:
    """Return the name of a message of google.rpc, such as BadRequest; "" for the errors of an older API."""
    if isinstance(detail, dict):
        return _field(cast(dict[str, object], detail), "@type").rpartition(".")[2]
    return _field(getattr(detail, "DESCRIPTOR", None), "name")


def _field(thing: Any, name: str) -> str:
    found: object = cast(dict[str, object], thing).get(name) if isinstance(thing, dict) else getattr(thing, name, "")
    return found if isinstance(found, str) else ""


def _told(http: int, code: int, words: str, reasons: frozenset[str], more: str, wait: float | None) -> Answer:
    """Return the answer. All of it decides, before its words are shortened for the user."""
    if http == 429:
        code = 8  # the class of the exception says "too many requests" for all of them
    text, name = f"{words} {more}", _NAMES.get(code, "")
    row = error_table().find(name, text, reasons)
    answer = Answer(kind=Kind.UNAVAILABLE, words=to_one_line(words, LONGEST_ANSWER), wait=wait)
    answer = error_table().add_row(answer, row, text)
    if answer.kind is Kind.CAPACITY and wait is not None and not _says_capacity(words):
        return replace(answer, kind=Kind.THROTTLED, next_step="")  # Retry-After is about calls, not about machines
    return answer


def _says_capacity(words: str) -> bool:
    """Return whether the text itself means machines; 13 is INTERNAL, which means nothing of its own."""
    return by_code(13, words) is Kind.CAPACITY


def _retry_after(headers: Any) -> float | None:
    word = str(headers.get("Retry-After") or headers.get("retry-after") or "").strip()
    return float(word) if re.fullmatch(r"[0-9]{1,6}", word) else None
