"""Calls of the smaller services: the scenario's faults befall them, and the audit log has them."""

from __future__ import annotations

from orch_fronts.aws.calls import AwsCall, AwsRefusal
from orchestrator.simulator.access import Access
from orchestrator.simulator.calls import ApiError, Code


def ask(access: Access | None, call: AwsCall, subject: str) -> None:
    """The neutral cloud counts it as an operation named "get-parameter". Raises AwsRefusal for a fault."""
    if access is None:
        return
    name = "".join(f"-{one.lower()}" if one.isupper() else one for one in call.operation).removeprefix("-")
    try:
        with access.open() as cloud:
            cloud.ask(name, subject)
    except ApiError as error:
        raise _refusal(error) from error


def _refusal(error: ApiError) -> AwsRefusal:
    """Common errors of the services that speak JSON or the query protocol (their API references, 2026)."""
    match error.code:
        case Code.THROTTLED:
            return AwsRefusal("ThrottlingException", "Rate exceeded")
        case Code.DENIED:
            return AwsRefusal("AccessDeniedException", error.words)
        case Code.UNAVAILABLE:
            return AwsRefusal("ServiceUnavailable", error.words, 503)
        case Code.TIMEOUT:
            return AwsRefusal("ServiceUnavailable", error.words, 503, answered=False)
        case _:
            return AwsRefusal("InternalServerError", error.words, 500)


def page(names: list[str], call: AwsCall, most: int) -> tuple[list[str], str]:
    """One page by MaxResults and NextToken, and the token of the next; "" on the last. Raises AwsRefusal."""
    size, token = call.params.get("MaxResults", most), call.params.get("NextToken") or "0"
    if not isinstance(size, int) or not 1 <= size <= most:
        words = f"1 validation error detected: Value '{size}' at 'maxResults' failed to satisfy constraint: 1 to {most}"
        raise AwsRefusal("ValidationException", words)
    if not str(token).isdecimal():
        raise AwsRefusal("InvalidNextToken", "The specified token isn't valid.")
    end = int(token) + size
    return names[int(token) : end], str(end) if end < len(names) else ""
