"""The failure of a delivery."""

from __future__ import annotations

from orchestrator.errors import OrchError

DEADLINE = 30.0  # seconds for one try, whatever the receiver does


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
