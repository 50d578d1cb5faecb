"""What the engine tells, drawn: a line per action on stderr, the program's output on stdout.

On a terminal the last line of stderr is alive: it shows what is going on and is rewritten. Elsewhere every line stays,
and a long wait says something every 15 seconds.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from orchestrator.cli.action_words import action_words, is_remark
from orchestrator.cli.human import duration, size
from orchestrator.cli.output import Output
from orchestrator.cli.terminal import Style, look_at
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action, Conclude, RunSetup
from orchestrator.plan.steps import Wait, WaitFor

QUIET_SECONDS = 15.0  # between two lines about the same wait, where lines stay
DUE_TOLD, DUE_SECONDS = 20, 3600.0  # what is due in days is told each hour, then each 20th part of what is left
SILENT_JOB_SECONDS = 60.0  # a running program that prints nothing is mentioned this often
SHORT_WAIT = 2.0  # a wait shorter than this is not worth a line that stays


class TerminalNarrator:
    """An engine.narrator.Narrator. Use as a context manager: leaving it writes what is still held back.

    out: for the program's output; setup's goes to stderr. stop_when_closed: raise ReaderLeft when nobody reads
    `out` any more; otherwise that is said once, and the work goes on.
    """

    def __init__(self, out: TextIO, *, prefix: bool = True, stop_when_closed: bool = False) -> None:
        self._stdout, self._stderr = out, sys.stderr  # both held, so that their buffers stay open
        self._terminal = look_at(sys.stderr)
        self._lock = threading.RLock()
        self._line = ""  # what the unfinished last line of stderr shows
        self._keep = ""  # what stays of it when something else has to be said
        self._setup = False
        self._progress_told: dict[str, float] = {}
        self._wait = ""  # the reason of the wait that is told
        self._told = 0.0  # seconds into it when it was last told
        self._last_output = time.monotonic()
        self._output = self._open(out, prefix, None if stop_when_closed else self._nobody_reads)
        self._setup_output = self._open(sys.stderr, True, _ignore)

    def __enter__(self) -> TerminalNarrator:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._output.finish()
        self._setup_output.finish()
        self._make_room()

    # --- what the engine tells --------------------------------------------------------------------------

    def starting(self, action: Action) -> None:
        with self._lock:
            self._setup = isinstance(action, RunSetup)
            words = action_words(action)
            if is_remark(action):
                self._say(words)
            elif words:
                self._begin(words)

    def finished(self, action: Action, seconds: float) -> None:
        self._setup_output.finish()  # before our lock is taken: writers take the printer's lock first
        with self._lock:
            self._setup = False
            words = action_words(action)
            if words and not is_remark(action):
                self._end(words, "done" if seconds < 0.05 else f"done in {duration(seconds)}")

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        self._setup_output.finish()  # before our lock is taken: writers take the printer's lock first
        with self._lock:
            self._setup = False
            if not isinstance(action, Conclude):
                failed = self._terminal.paint("failed", Style.RED)
                self._end(action_words(action), f"{failed}{_where(outcomes)}")

    def waiting(self, wait: Wait, seconds: float) -> None:
        with self._lock:
            if wait.reason != self._wait:
                self._wait, self._told = wait.reason, 0.0
            if wait.on is WaitFor.JOB:
                self._job_runs(seconds)
                return
            quiet = QUIET_SECONDS
            if wait.due is not None:
                left = max(wait.due - time.time(), 0)
                words, quiet = f"{wait.reason}, in {duration(left)}", max(quiet, min(left / DUE_TOLD, DUE_SECONDS))
            else:
                words = f"{wait.reason}, {duration(seconds)}"
                if wait.until is not None:
                    words += f" (at most {duration(max(wait.until - time.time(), 0))} more)"
            if self._terminal.live:
                if seconds >= 0.5:
                    self._draw(words)
            elif seconds >= SHORT_WAIT and (not self._told or seconds - self._told >= quiet):
                self._told = seconds
                self._say(words)

    def progress(self, what: str, done: int, total: int) -> None:
        with self._lock:
            share = f"{min(done / total, 1.0):.0%}" if total else size(done)
            if self._terminal.live:
                self._draw(f"{self._keep or what} … {share}", keep=self._keep)
            elif time.monotonic() - self._progress_told.setdefault(what, time.monotonic()) >= QUIET_SECONDS:
                self._progress_told[what] = time.monotonic()
                self._say(f"{what}: {share}")

    def output(self, host: HostAddress, block: bytes) -> None:
        self._last_output = time.monotonic()
        (self._setup_output if self._setup else self._output).write(host, block)

    def note(self, words: str) -> None:
        with self._lock:
            self._say(words)

    def _open(self, stream: TextIO, prefix: bool, on_closed: Callable[[], None] | None) -> Output:
        return Output(
            stream.buffer,
            prefix=prefix,
            colour=look_at(stream).colour,
            lock=self._lock,
            make_room=self._make_room,
            on_closed=on_closed,
        )

    def _nobody_reads(self) -> None:
        self.note("nobody reads the output any more; the program goes on")

    # --- drawing; the caller holds the lock ---------------------------------------------------------------

    def _job_runs(self, seconds: float) -> None:
        """Only when the program is silent: its output is the better sign of life."""
        silent = min(time.monotonic() - self._last_output, seconds)
        if self._terminal.live:
            if silent >= QUIET_SECONDS:
                self._draw(f"the program runs, no output for {duration(silent)}")
        elif silent >= SILENT_JOB_SECONDS and seconds - self._told >= SILENT_JOB_SECONDS:
            self._told = seconds
            self._say(f"the program runs, no output for {duration(silent)}")

    def _begin(self, words: str) -> None:
        """A line that will be finished by the result, or stay as it is when something comes between."""
        self._make_room()
        if self._terminal.live:
            self._draw(f"{words} …", keep=words)
        else:
            self._line, self._keep = words, words
            self._write(f"{words} … ")

    def _end(self, words: str, result: str) -> None:
        if self._keep != words:
            self._say(f"{words}: {result}")
        elif self._terminal.live:
            self._keep = ""
            self._say(f"{words}: {result}")
        else:
            self._line = self._keep = ""
            self._write(f"{result}\n")

    def _say(self, words: str) -> None:
        self._make_room()
        self._write(f"{words}\n")

    def _draw(self, words: str, keep: str = "") -> None:
        """Rewrite the living line, cut so that it never wraps: a wrapped line cannot be taken back."""
        if self._keep and self._keep != keep:
            self._make_room()
        width = (self._terminal.width or 80) - 1
        self._line, self._keep = words, keep
        self._write("\r\x1b[K" + (words if len(words) <= width else words[: width - 1] + "…"))

    def _make_room(self) -> None:
        """End the unfinished line, so that something else can be written."""
        with self._lock:
            if not self._line:
                return
            if self._terminal.live:
                self._write("\r\x1b[K" + (f"{self._keep} …\n" if self._keep else ""))
            else:
                self._write("\n")
            self._line = self._keep = ""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: the work goes on all the same
            self._stderr.write(text)
            self._stderr.flush()


def _ignore() -> None:
    """stderr is closed: there is nobody to tell."""


def _where(outcomes: tuple[HostOutcome, ...]) -> str:
    """` on worker2 (exit 3)`, or how many hosts failed in which way."""
    if not outcomes:
        return ""
    if len(outcomes) == 1:
        outcome = outcomes[0]
        return f" on {'head' if outcome.rank == 0 else f'worker{outcome.rank}'} ({outcome.verdict})"
    kinds = Counter(outcome.verdict for outcome in outcomes)
    return f" on {len(outcomes)} hosts ({', '.join(f'{kind}: {count}' for kind, count in kinds.most_common())})"
