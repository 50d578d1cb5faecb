"""What an unattended engine tells: lines with a time and a name on stderr, which is its log file."""

from __future__ import annotations

import sys
import time

from orchestrator.cli.action_words import action_words
from orchestrator.cli.human import duration
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action
from orchestrator.plan.steps import Wait, WaitFor

TELL_EVERY = 300.0  # seconds between two lines about the same wait


class Logbook:
    """An engine.narrator.Narrator. The program's output is not repeated here: it is kept per host, see orch logs."""

    def __init__(self, name: str, job: int) -> None:
        self._head = f"{name} {job}" if job else name
        self._wait = ""
        self._told = 0.0

    def starting(self, action: Action) -> None:
        if words := action_words(action):
            self.note(words)

    def finished(self, action: Action, seconds: float) -> None:
        if seconds >= 1.0 and (words := action_words(action)):
            self.note(f"{words}: done in {duration(seconds)}")

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        bad = [outcome for outcome in outcomes if not outcome.ok]
        first = f": rank {bad[0].rank} {bad[0].verdict} {bad[0].last_line}" if bad else ""
        self.note(f"{action_words(action)}: failed{first}")

    def waiting(self, wait: Wait, seconds: float) -> None:
        if wait.on is WaitFor.JOB:
            return
        if wait.reason != self._wait or seconds - self._told >= TELL_EVERY:
            self._wait, self._told = wait.reason, seconds
            self.note(wait.reason)

    def progress(self, what: str, done: int, total: int) -> None:
        pass

    def output(self, host: HostAddress, block: bytes) -> None:
        pass

    def note(self, words: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        sys.stderr.write(f"{stamp} [{self._head}] {words}\n")
        sys.stderr.flush()
