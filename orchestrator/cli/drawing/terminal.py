"""What a stream can show, decided separately for stdout and stderr, since either may be a pipe."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO

from orchestrator.messages import escape_controls


class OutputClosed(Exception):
    """The reader of our output has closed it.

    Not an OSError: further down those mean a broken connection to a host.
    """


class Style(StrEnum):
    """Styles of text, by their ANSI codes."""

    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


@dataclass(frozen=True, slots=True)
class Terminal:
    """What a stream can show.

    Attributes:
        live: A line may be rewritten, since a person is watching.
        colour: Text may be coloured.
        width: Columns; None when it is not a terminal.
    """

    live: bool
    colour: bool
    width: int | None

    def paint(self, text: str, *styles: Style) -> str:
        """Return the text in these styles, or unchanged where colour is off."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m"


def inspect_terminal(stream: TextIO) -> Terminal:
    """Decide what a stream can show, from the stream itself and NO_COLOR, FORCE_COLOR, TERM and CI.

    NO_COLOR wins (no-color.org, read November 2026).
    """
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


def write_stderr(*lines: str) -> None:
    """Write messages, one a line, to stderr; control characters of hosts and clouds in them are written out."""
    sys.stderr.write("".join(f"{escape_controls(line)}\n" for line in lines))
    sys.stderr.flush()


def write_stdout(*lines: str) -> None:
    """Write data, one line each, to stdout; a terminal gets no control characters but colours."""
    clean = escape_controls if _is_tty(sys.stdout) else str
    sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))


def can_ask() -> bool:
    """Return whether a question would be seen and could be answered."""
    return _is_tty(sys.stdin) and _is_tty(sys.stderr)


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _is_tty(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
