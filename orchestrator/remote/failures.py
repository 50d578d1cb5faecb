"""The failure of one host: raised inside this package, reported as HostOutcome.failure."""

from __future__ import annotations

from orchestrator.hosts import Failure


class HostFailure(Exception):
    """The failure of one host.

    Attributes:
        retry: connecting again may help, and nothing was sent that could run twice.
        remedy: what a person can do about it, where this failure knows more than its kind; or "".
    """

    def __init__(self, failure: Failure, detail: str, *, retry: bool = False, remedy: str = "") -> None:
        super().__init__(f"{failure}: {detail}")
        self.failure = failure
        self.detail = detail
        self.retry = retry
        self.remedy = remedy


def describe_error(error: BaseException) -> str:
    """Return an exception as one line: its message, or its type when it has none."""
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())
