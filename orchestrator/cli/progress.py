"""How far a transfer is: one moving line of stderr on a terminal, else a plain line every five seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from orchestrator.cli import human

if TYPE_CHECKING:
    from orchestrator.storage.sync import Progress


class Reporter:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._every = 0.2 if self._is_terminal else 5.0
        self._last = clock()
        self._moved = 0

    def add(self, path: str, count: int, size: int) -> None:
        """Progress of a single file."""
        self._moved += count
        self._show(f"{human.size(self._moved)} of {human.size(size)}  {path}")

    def update(self, now: Progress) -> None:
        """Progress of many files."""
        done = f"{now.files_done}/{now.files} files, {human.size(now.bytes_done)} of {human.size(now.bytes)}"
        self._show(f"{done}  {now.path}")

    def waiting(self, what: str) -> Callable[[float], None]:
        """Progress of what tells nothing but its seconds."""
        return lambda seconds: self._show(f"{what}, {human.duration(seconds)} so far")

    def end(self, line: str) -> None:
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
