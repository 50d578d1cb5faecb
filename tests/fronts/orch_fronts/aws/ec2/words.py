"""Refusals in EC2's words, and the neutral cloud's refusals in them.

Codes and wordings: "Error codes for the Amazon EC2 API" (EC2 API reference) and messages quoted in public issues, read
November 2026. Which of them are only modelled, rules.py says.
"""

from __future__ import annotations

from collections.abc import Mapping

from orch_fronts.answers import say
from orch_fronts.aws.calls import AwsRefusal
from orchestrator.simulator.calls import ApiError, Code

_OF_CODE: Mapping[Code, tuple[str, int]] = {
    Code.ALREADY_EXISTS: ("InternalError", 500),  # names are made unique before
    Code.TOKEN_MISMATCH: ("IdempotentParameterMismatch", 400),
    Code.TOKEN_SPENT: ("IdempotentInstanceTerminated", 400),
    Code.NOT_FOUND: ("InvalidInstanceID.NotFound", 400),
    Code.NO_CAPACITY: ("InsufficientInstanceCapacity", 500),
    Code.NOT_OFFERED: ("Unsupported", 400),
    Code.QUOTA: ("VcpuLimitExceeded", 400),
    Code.DENIED: ("UnauthorizedOperation", 403),
    Code.INVALID: ("InvalidParameterValue", 400),
    Code.WRONG_STATE: ("IncorrectInstanceState", 400),
    Code.THROTTLED: ("RequestLimitExceeded", 503),
    Code.INTERNAL: ("InternalError", 500),
    Code.UNAVAILABLE: ("Unavailable", 503),
    Code.TIMEOUT: ("ServiceUnavailable", 503),
}


def answer(name: str, **values: object) -> AwsRefusal:
    """An answer of EC2 with these values (orch_fronts/answers)."""
    said = say(name, **values)
    return AwsRefusal(str(said.entry.code), said.text, said.entry.http)


def refused(error: ApiError) -> AwsRefusal:
    if error.answer:
        return answer(error.answer)
    code, http = _OF_CODE[error.code]
    words = _WORDS.get(error.code, error.words)
    return AwsRefusal(code, words, http, answered=error.code is not Code.TIMEOUT)


def wrong_value(words: str) -> AwsRefusal:
    return AwsRefusal("InvalidParameterValue", words)


def wrong_combination(words: str) -> AwsRefusal:
    return AwsRefusal("InvalidParameterCombination", words)


def missing(name: str) -> AwsRefusal:
    return AwsRefusal("MissingParameter", f"The request must contain the parameter {name}")


def dry_run() -> AwsRefusal:
    return AwsRefusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


_WORDS: Mapping[Code, str] = {
    Code.THROTTLED: "Request limit exceeded.",
    Code.INTERNAL: "An internal error has occurred",
    Code.UNAVAILABLE: "The service is unavailable. Please try again shortly.",
    Code.TIMEOUT: "The service is unavailable. Please try again shortly.",
    Code.DENIED: "You are not authorized to perform this operation.",
}
