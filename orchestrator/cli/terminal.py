"""What a stream can show: decided for stdout and stderr apart, since either may be a pipe."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO


class ReaderLeft(Exception):
    """Nobody reads our output any more. Not an OSError: those mean a broken connection to a host further down."""


class Style(StrEnum):
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


@dataclass(frozen=True, slots=True)
class Terminal:
    """live: a person watches, a line may be rewritten. width: columns, None when it is not a terminal."""

    live: bool
    colour: bool
    width: int | None

    def paint(self, text: str, *styles: Style) -> str:
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m"


def look_at(stream: TextIO) -> Terminal:
    """From the stream and NO_COLOR, FORCE_COLOR, TERM, CI. NO_COLOR wins (no-color.org, read November 2026)."""
    tty = _is_tty(stream)
    dumb = os.environ.get("TERM", "") == "dumb"
    if os.environ.get("NO_COLOR"):
        colour = False
    elif os.environ.get("FORCE_COLOR", "") not in {"", "0"}:
        colour = True
    else:
        colour = tty and not dumb
    live = tty and not dumb and not os.environ.get("CI")
    return Terminal(live=live, colour=colour, width=_width() if tty else None)


def say(*lines: str) -> None:
    """Talk: to stderr."""
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def put(*lines: str) -> None:
    """Data: to stdout."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def can_ask() -> bool:
    """Whether a question would be seen and could be answered."""
    return _is_tty(sys.stdin) and _is_tty(sys.stderr)


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _is_tty(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
