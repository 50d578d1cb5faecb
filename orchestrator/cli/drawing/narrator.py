"""Draw what the engine reports: a line per action on stderr, the program's output on stdout.

On a terminal the last line of stderr shows the current step and is rewritten. Elsewhere every line stays, and a long
wait prints a line every 15 seconds.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TextIO

from orchestrator.cli.drawing.host_output import HostOutput
from orchestrator.cli.drawing.terminal import Style, inspect_terminal
from orchestrator.engine.progress import DescribedNarrator, Progress, ProgressKind
from orchestrator.formatting import format_duration, format_size
from orchestrator.hosts import HostAddress
from orchestrator.messages import escape_controls
from orchestrator.plan.limits import format_time

QUIET_SECONDS = 15.0  # between two lines about the same wait, where lines cannot be rewritten
DUE_PARTS, DUE_SECONDS = 20, 3600.0  # a wait of days is reported each hour, then each 20th part of the rest
SILENT_JOB_SECONDS = 60.0  # a running program that prints nothing is mentioned this often
SHORT_WAIT = 2.0  # seconds; a shorter wait is not worth its own line


class TerminalNarrator(DescribedNarrator):
    """Draws progress and output; leaving it as a context manager writes what is still held back.

    Args:
        out: For the program's output; the output of setup goes to stderr.
        prefix: Whether each line of the program's output begins with its host.
        raw: Whether hosts may send control characters to a terminal, and a pipe gets what a carriage return overwrites.
        stop_when_closed: Raise OutputClosed when the reader has closed `out`; otherwise report that once and continue.
    """

    def __init__(self, out: TextIO, *, prefix: bool = True, raw: bool = False, stop_when_closed: bool = False) -> None:
        self._stdout, self._stderr = out, sys.stderr  # both held, so that their buffers stay open
        self._terminal = inspect_terminal(sys.stderr)
        self._lock = threading.RLock()
        self._line = ""  # what the unfinished last line of stderr shows
        self._open_line = ""  # what stays of it when something else is printed
        self._setup = False
        self._raw = raw
        self._progress_reported_at: dict[str, float] = {}
        self._wait = ""  # the reason of the current wait
        self._reported_at = 0.0  # seconds into it when it was last reported
        self._last_output = time.monotonic()
        self._output = self._open(out, prefix, None if stop_when_closed else self._report_closed_output)
        self._setup_output = self._open(sys.stderr, True, _ignore)

    def __enter__(self) -> TerminalNarrator:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._output.finish()
        self._setup_output.finish()
        self._end_open_line()

    # --- called by the engine --------------------------------------------------------------------------

    def show(self, progress: Progress) -> None:
        """Draw one thing that happened."""
        words, result = escape_controls(progress.words), escape_controls(progress.result)
        progress = replace(progress, words=words, result=result)  # which a service may have sent
        if progress.kind in (ProgressKind.ENDED, ProgressKind.FAILED):
            self._setup_output.finish()  # before our lock is taken: writers take the printer's lock first
        with self._lock:
            match progress.kind:
                case ProgressKind.BEGUN:
                    self._setup = progress.setup
                    if progress.instant:
                        self._write_line(progress.words)
                    elif progress.words:
                        self._begin(progress.words)
                case ProgressKind.ENDED:
                    self._setup = False
                    if progress.words and not progress.instant:
                        self._end(progress.words, progress.result)
                case ProgressKind.FAILED:
                    self._setup = False
                    if progress.words:
                        self._end(progress.words, f"{self._terminal.paint('failed', Style.RED)}{progress.result}")
                case ProgressKind.WAIT:
                    self._draw_wait(progress)
                case ProgressKind.MOVED:
                    self._draw_moved(progress)
                case ProgressKind.NOTE:
                    self._write_line(progress.words)

    def output(self, host: HostAddress, block: bytes) -> None:
        """Print a block of a host's output."""
        self._last_output = time.monotonic()
        (self._setup_output if self._setup else self._output).write(host, block)

    def setup_output(self, host: HostAddress, block: bytes) -> None:
        """Print a block of the output of a host's setup."""
        self._last_output = time.monotonic()
        self._setup_output.write(host, block)

    def _open(self, stream: TextIO, prefix: bool, on_closed: Callable[[], None] | None) -> HostOutput:
        return HostOutput(
            stream.buffer,
            terminal=inspect_terminal(stream),
            prefix=prefix,
            raw=self._raw,
            lock=self._lock,
            make_room=self._end_open_line,
            on_closed=on_closed,
        )

    def _report_closed_output(self) -> None:
        self.note("the output was closed by its reader; the program continues")

    # --- drawing; the caller holds the lock ---------------------------------------------------------------

    def _draw_wait(self, wait: Progress) -> None:
        if wait.words != self._wait:
            self._wait, self._reported_at = wait.words, 0.0
        if wait.of_program:
            self._report_silent_job(wait.seconds)
            return
        line, quiet = _describe_wait(wait, time.time())
        if self._terminal.live:
            if wait.seconds >= 0.5:
                self._draw(line)
        elif self._reported_at and not wait.repeats:
            return
        elif wait.seconds >= SHORT_WAIT and (not self._reported_at or wait.seconds - self._reported_at >= quiet):
            self._reported_at = wait.seconds
            self._write_line(line)

    def _draw_moved(self, moved: Progress) -> None:
        share = f"{min(moved.done / moved.total, 1.0):.0%}" if moved.total else format_size(moved.done)
        if self._terminal.live:
            self._draw(f"{self._open_line or moved.words} … {share}", keep=self._open_line)
        elif time.monotonic() - self._progress_reported_at.setdefault(moved.words, time.monotonic()) >= QUIET_SECONDS:
            self._progress_reported_at[moved.words] = time.monotonic()
            self._write_line(f"{moved.words}: {share}")

    def _report_silent_job(self, seconds: float) -> None:
        """Report only a silent program: output is the better sign of life."""
        silent = min(time.monotonic() - self._last_output, seconds)
        if self._terminal.live:
            if silent >= QUIET_SECONDS and not self._output.is_live:
                self._draw(f"the program is running; no output for {format_duration(silent)}")
        elif silent >= SILENT_JOB_SECONDS and seconds - self._reported_at >= SILENT_JOB_SECONDS:
            self._reported_at = seconds
            self._write_line(f"the program is running; no output for {format_duration(silent)}")

    def _begin(self, line: str) -> None:
        """Begin a line that the result finishes, or that stays as it is when something comes between."""
        self._end_open_line()
        if self._terminal.live:
            self._draw(f"{line} …", keep=line)
        else:
            self._line, self._open_line = line, line
            self._write(f"{line} … ")

    def _end(self, line: str, result: str) -> None:
        if self._open_line != line:
            self._write_line(f"{line}: {result}")
        elif self._terminal.live:
            self._open_line = ""
            self._write_line(f"{line}: {result}")
        else:
            self._line = self._open_line = ""
            self._write(f"{result}\n")

    def _write_line(self, line: str) -> None:
        self._end_open_line()
        self._write(f"{escape_controls(line)}\n")

    def _draw(self, line: str, keep: str = "") -> None:
        """Rewrite the live line, cut so that it never wraps: a wrapped line cannot be erased."""
        line = escape_controls(line).replace("\n", " ")
        if self._open_line and self._open_line != keep:
            self._end_open_line()
        width = (self._terminal.width or 80) - 1
        self._line, self._open_line = line, keep
        self._write("\r\x1b[K" + (line if len(line) <= width else line[: width - 1] + "…"))

    def _end_open_line(self) -> None:
        """End the unfinished line, so that something else can be written."""
        with self._lock:
            if not self._line:
                return
            if self._terminal.live:
                self._write("\r\x1b[K" + (f"{self._open_line} …\n" if self._open_line else ""))
            else:
                self._write("\n")
            self._line = self._open_line = ""

    def _write(self, text: str) -> None:
        self._output.erase()
        self._setup_output.erase()
        with contextlib.suppress(OSError, ValueError):  # stderr is closed: continue without it
            self._stderr.write(text)
            self._stderr.flush()


def _ignore() -> None:
    """Do nothing: stderr is closed, so there is nowhere to report it."""


def _describe_wait(wait: Progress, now: float) -> tuple[str, float]:
    """Return the line of a wait, and the seconds until a log repeats it."""
    if wait.due:
        left = max(wait.due - now, 0)
        line = f"{wait.words}, in {format_duration(left)}"
        if wait.stops:
            line += f" (stops trying at {format_time(wait.stops, now)} unless it gets machines before)"
            return line, QUIET_SECONDS
        return line, max(QUIET_SECONDS, min(left / DUE_PARTS, DUE_SECONDS))
    line = f"{wait.words}, {format_duration(wait.seconds)}"
    if not wait.until:
        return line, QUIET_SECONDS
    left_text = format_duration(max(wait.until - now, 0))
    return f"{line} ({'continues' if wait.pauses else 'gives up'} in {left_text})", QUIET_SECONDS
