"""The failure of a delivery, and the bound on its duration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from orchestrator.errors import OrchError

DEADLINE = 30.0  # seconds for one try, whatever the receiver does
TIMEOUT = 10.0  # seconds for each read of a socket

_Result = TypeVar("_Result")


class DeliveryError(OrchError):
    """A message was not accepted, or it is not known whether it was.

    Attributes:
        is_transient: Whether another try soon may succeed.
        retry_after: The seconds that the receiver asks to wait; None when it names none.
    """

    code = "delivery"

    def __init__(
        self, what: str, why: str = "", *, is_transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(what, why, "orch notify test   tries it again and says what happens")
        self.is_transient = is_transient
        self.retry_after = retry_after


def call_within(seconds: float, call: Callable[[], _Result], target: str) -> _Result:
    """Return what the call returns, or give it up: a receiver that sends a byte now and then meets every timeout.

    Raises:
        DeliveryError: The time is over. The call may still succeed.
    """
    results: list[_Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again by the caller
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True, name="delivery")
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise DeliveryError(f"{target} did not answer within {seconds:.0f} s", is_transient=True)
    return results[0]
