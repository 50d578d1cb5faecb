"""What an answer of AWS means: from an exception of botocore to an answer, and from that to an error for the user.

The table of codes is errors.toml.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any, cast

from orchestrator.errors import OrchError
from orchestrator.messages import to_one_line
from orchestrator.providers.core.faults import Answer, ErrorTable, Kind, load_error_table

LONGEST_ANSWER = 1000  # characters of an answer that a user sees; that of PendingVerification has 430
_ACTION = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")
_ENCODED = re.compile(r"\s*Encoded authorization failure message: \S+")


@cache
def error_table() -> ErrorTable:
    """Return the errors of AWS."""
    return load_error_table(__package__ or "")


def by_code(code: str, http: int = 400) -> Kind:
    """Return the kind of an error code; one that is not in the table has that of its HTTP status."""
    return error_table().classify(code, unknown=Kind.UNAVAILABLE if http >= 500 else Kind.UNKNOWN)


def understood(error: Exception, operation: str = "") -> Answer | None:
    """Return what an exception of the client library says; None for one that is no answer of a service."""
    of: Any = import_module("botocore.exceptions")  # the library ships no types
    unread: Any = import_module("botocore.parsers").ResponseParserError
    if isinstance(error, of.ClientError):
        response: Any = cast(Any, error).response
        said: Any = response.get("Error", {})
        http = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code, text = str(said.get("Code", "")), str(said.get("Message", ""))
        answer = Answer(kind=by_code(code, http), code=code, words=one_line(text), operation=operation)
        return error_table().add_row(answer, error_table().find(code, text), text)
    missing = (
        of.NoCredentialsError, of.PartialCredentialsError, of.CredentialRetrievalError, of.TokenRetrievalError,
        of.SSOError, of.UnauthorizedSSOTokenError, of.NoAuthTokenError,
    )  # fmt: skip
    broken = (of.HTTPClientError, of.ConnectionError, of.IncompleteReadError, unread, ConnectionError)
    for kind, types in (
        (Kind.INVALID, (of.ParamValidationError, of.ProfileNotFound)),
        (Kind.CREDENTIALS, missing),
        (Kind.NO_ANSWER, broken),
    ):
        if isinstance(error, types):
            return Answer(kind=kind, words=one_line(str(error) or type(error).__name__), operation=operation)
    return None


def action_of(answer: Answer) -> str:
    """Return the IAM action that is missing; "" when neither AWS's message nor the operation says it."""
    found = _ACTION.search(answer.words)
    if found is not None:
        return found[1]
    return f"ec2:{answer.operation}" if answer.operation else ""


def explain(verb: str, name: str, answer: Answer, quota: str = "") -> OrchError:
    """Return the error for the user, with what to do next. quota: what requests more of it, see quotas.py."""
    error = error_table().explain(verb, name, answer, quota if answer.kind is Kind.QUOTA else "")
    if answer.kind is Kind.PERMISSION and not answer.next_step:
        action = action_of(answer)
        missing = f"these credentials may not do {action}" if action else str(answer.kind)
        error.why = f"{missing}\n{answer}"
    return error


def one_line(words: str) -> str:
    """Return AWS's message without the encoded part that only an administrator can decode."""
    return to_one_line(_ENCODED.sub("", words), LONGEST_ANSWER)
