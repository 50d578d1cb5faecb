"""The output of hosts made fit for a terminal: nothing in it moves the cursor, forges a prefix or floods the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.hosts import HostAddress
from orchestrator.messages import escape_controls

LONGEST_LINE = 4096  # characters of one line
LINES_A_SECOND = 2000  # of one host, more than can be read
BURST = 20_000  # lines of one host that may come together, such as those of `orch logs`
_END_OF_COLOUR = "\x1b[0m"


@dataclass(slots=True)
class _Allowance:
    lines: float
    at: float
    left_out: int = 0


class TerminalText:
    """Cleans blocks of complete lines; several hosts may send them from several threads, one thread a host."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowances: dict[HostAddress, _Allowance] = {}

    def clean(self, host: HostAddress, block: bytes) -> bytes:
        """Return the lines to show, each ended; b"" for none.

        Args:
            host: Whose they are.
            block: Lines, of which the last has its end too.
        """
        lines = block.decode("utf-8", "replace").split("\n")[:-1]
        allowance = self._allowances.setdefault(host, _Allowance(BURST, self._clock()))
        now = self._clock()
        allowance.lines = min(BURST, allowance.lines + (now - allowance.at) * LINES_A_SECOND)
        allowance.at = now
        shown = lines[: int(allowance.lines)]
        allowance.lines -= len(shown)
        notes = [_describe_left_out(allowance.left_out)] if shown and allowance.left_out else []
        allowance.left_out = (0 if shown else allowance.left_out) + len(lines) - len(shown)
        return "".join(f"{line}\n" for line in (*notes, *map(_clean_line, shown))).encode()

    def finish(self) -> list[tuple[HostAddress, bytes]]:
        """Return the last notes on lines that were left out."""
        found = [(host, one.left_out) for host, one in self._allowances.items() if one.left_out]
        self._allowances.clear()
        return [(host, f"{_describe_left_out(count)}\n".encode()) for host, count in found]


def _describe_left_out(count: int) -> str:
    return f"[{count:,} lines came faster than a terminal shows them: orch logs has them, and so has a pipe]"


def _clean_line(line: str) -> str:
    """Return a line without what could move the cursor, cut to what a person can read."""
    more = len(line) - LONGEST_LINE
    shown = escape_controls(line[:LONGEST_LINE])
    if "\x1b" in shown:
        shown += _END_OF_COLOUR
    return shown if more <= 0 else f"{shown} [{more:,} more characters: --raw shows them]"
