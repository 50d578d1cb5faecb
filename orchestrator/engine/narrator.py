"""What the engine tells while it works. The command line draws it; tests collect it; nothing is printed here."""

from __future__ import annotations

from typing import Protocol

from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait


class Narrator(Protocol):
    """Calls may come from several threads; each must return at once."""

    def starting(self, action: Action) -> None:
        """An action begins."""
        ...

    def finished(self, action: Action, seconds: float) -> None:
        """An action ended well."""
        ...

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        """An action failed on these hosts (may be empty when it was not about hosts)."""
        ...

    def waiting(self, wait: Wait, seconds: float) -> None:
        """Still waiting; called about once a second with the time waited so far."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Bytes or items of one long step, as they go."""
        ...

    def output(self, host: HostAddress, block: bytes) -> None:
        """Raw output of the user's setup or program on one host, in order for that host."""
        ...

    def note(self, words: str) -> None:
        """One line worth saying, e.g. how to come back after a detach."""
        ...
