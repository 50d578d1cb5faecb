"""The protocol by which the engine reports its progress. It prints nothing itself."""

from __future__ import annotations

from typing import Protocol

from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait


class Narrator(Protocol):
    """Receives progress while a command works: the command line draws it, tests collect it.

    Calls may come from several threads; each must return immediately.
    """

    def starting(self, action: Action) -> None:
        """Report that an action begins."""
        ...

    def finished(self, action: Action, seconds: float) -> None:
        """Report that an action succeeded, and how many seconds it took."""
        ...

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        """Report that an action failed on these hosts; empty when it was not about hosts."""
        ...

    def waiting(self, wait: Wait, seconds: float) -> None:
        """Report a wait that lasts, about once a second, with the seconds waited so far."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Report the bytes or items done of one long step."""
        ...

    def output(self, host: HostAddress, block: bytes) -> None:
        """Report raw output of the user's setup or program on one host, in order for that host."""
        ...

    def note(self, words: str) -> None:
        """Report one line for the user, such as how to resume after a detach."""
        ...


class SilentNarrator(Narrator):
    """Drops what it receives, for work without a person before it."""

    def starting(self, action: Action) -> None:
        """Drop it."""

    def finished(self, action: Action, seconds: float) -> None:
        """Drop it."""

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        """Drop it."""

    def waiting(self, wait: Wait, seconds: float) -> None:
        """Drop it."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Drop it."""

    def output(self, host: HostAddress, block: bytes) -> None:
        """Drop it."""

    def note(self, words: str) -> None:
        """Drop it."""
