"""Report the progress of a transfer: one rewritten line on a terminal, else a line every five seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from orchestrator.formatting import format_duration, format_size

if TYPE_CHECKING:
    from orchestrator.storage.sync import Progress


class TransferProgress:
    """The progress of one transfer, on stderr."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._every = 0.2 if self._is_terminal else 5.0
        self._last = clock()
        self._moved = 0

    def show_file(self, path: str, count: int, size: int) -> None:
        """Show the progress of a single file."""
        self._moved += count
        self._show(f"{format_size(self._moved)} of {format_size(size)}  {path}")

    def show_transfer(self, now: Progress) -> None:
        """Show the progress of many files."""
        done = f"{now.files_done}/{now.files} files, {format_size(now.bytes_done)} of {format_size(now.bytes)}"
        self._show(f"{done}  {now.path}")

    def show_seconds(self, what: str) -> Callable[[float], None]:
        """Return a callback that shows the seconds of work with no other measure."""
        return lambda seconds: self._show(f"{what}, {format_duration(seconds)} elapsed")

    def finish(self, line: str) -> None:
        """Replace the progress by the closing line."""
        if self._is_terminal:
            click.echo("\r\033[K", err=True, nl=False)
        click.echo(line, err=True)

    def _show(self, line: str) -> None:
        now = self._clock()
        if now - self._last < self._every:
            return
        self._last = now
        if self._is_terminal:
            click.echo(f"\r\033[K{line[:100]}", err=True, nl=False)
        else:
            click.echo(line, err=True)
