"""Questions to a service that may be away for a while: it is restarted, or another server takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import CloudError, OrchError

_AWAY_SECONDS = 600.0  # that a service may be away
_PAUSE_SECONDS = 2.0
_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class Patience:
    """Asks again while a service does not answer, and says so once.

    Attributes:
        report: Receives the line.
        subject: What continues meanwhile; "" when nothing is known to.
        next_step: What to do when the service is away for too long.
        report: Receives a line about it.
        pause: Waits so many seconds between two questions.
    """

    report: Callable[[str], object]
    subject: str
    next_step: str
    pause: Callable[[float], object] = time.sleep

    def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question.

        Raises:
            OrchError: The service refuses, or is away for too long.
        """
        since = None
        while True:
            try:
                return question()
            except CloudError as error:
                continues = f"{self.subject} continues" if self.subject else ""
                if since is None:
                    since = time.monotonic()
                    self.report("; ".join(part for part in (error.what, continues, "trying again") if part))
                elif time.monotonic() - since > _AWAY_SECONDS:
                    what = f"{error.what} for {_AWAY_SECONDS / 60:.0f} min"
                    raise OrchError(what, continues, self.next_step) from error
            self.pause(_PAUSE_SECONDS)
