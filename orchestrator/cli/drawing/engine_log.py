"""The log of an unattended engine: lines with a time and a cluster on stderr."""

from __future__ import annotations

import sys
import time

from orchestrator.engine.action_text import describe_action, describe_success
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait, WaitFor

REPEAT_SECONDS = 300.0  # seconds between two lines about the same wait


class EngineLog:
    """An engine.narrator.Narrator for the log file of an unattended engine.

    The program's output is not repeated here: it is kept per host, see `orch logs`.
    """

    def __init__(self, name: str, job: int) -> None:
        self._head = f"{name} {job}" if job else name
        self._wait = ""
        self._reported_at = 0.0

    def starting(self, action: Action) -> None:
        if text := describe_action(action):
            self.note(text)

    def finished(self, action: Action, seconds: float) -> None:
        if seconds >= 1.0 and (text := describe_action(action)):
            self.note(f"{text}: {describe_success(action, seconds)}")

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        bad = [outcome for outcome in outcomes if not outcome.ok]
        first = f": rank {bad[0].rank} {bad[0].verdict} {bad[0].last_line}" if bad else ""
        self.note(f"{describe_action(action)}: failed{first}")

    def waiting(self, wait: Wait, seconds: float) -> None:
        if wait.on is WaitFor.JOB:
            return
        if wait.reason != self._wait or (wait.repeat and seconds - self._reported_at >= REPEAT_SECONDS):
            self._wait, self._reported_at = wait.reason, seconds
            self.note(wait.reason)

    def progress(self, what: str, done: int, total: int) -> None:
        pass

    def output(self, host: HostAddress, block: bytes) -> None:
        pass

    def note(self, words: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        sys.stderr.write(f"{stamp} [{self._head}] {words}\n")
        sys.stderr.flush()
