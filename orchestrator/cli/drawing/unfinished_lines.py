"""Lines of hosts that have no end yet, such as progress bars, shown while they change.

On a terminal they are redrawn in place, below what stays. Elsewhere the last state of a line is written after a pause.
"""

from __future__ import annotations

import codecs
import math
import re
import shutil
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.cli.drawing.terminal import OutputClosed
from orchestrator.hosts import HostAddress
from orchestrator.messages import escape_controls

REDRAW_SECONDS = 0.25  # between two looks at all hosts' lines
PAUSE_SECONDS = 2.0  # without a change, after which a line is written where lines cannot be rewritten
REPEAT_SECONDS = 15.0  # until a line that keeps changing is written there, and between two writes of it
MOST_HOSTS = 8  # whose lines are redrawn at the same time: hundreds would fill the screen
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_STATE = 4096  # bytes of a state, of which a terminal shows the first columns


@dataclass(slots=True)
class UnfinishedLine:
    """The part of a line that one host has written; times are of the monotonic clock.

    Attributes:
        written: The state that was written last, where lines cannot be rewritten.
    """

    text: bytes
    begun: float
    changed: float
    written: bytes = b""
    written_at: float = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether it is time to write the state where lines cannot be rewritten."""
        paused = min(self.changed + PAUSE_SECONDS, self.begun + REPEAT_SECONDS)
        return self.text != self.written and now >= max(paused, self.written_at + REPEAT_SECONDS)


class UnfinishedLines:
    """Looks at unfinished lines four times a second, as long as there are any.

    Args:
        lock: Held while `read` and `show` are called; the caller of the methods holds it too.
        read: Returns the unfinished text of each host.
        show: Shows the lines, by host.
    """

    def __init__(
        self,
        lock: threading.RLock,
        read: Callable[[], Mapping[HostAddress, bytes]],
        show: Callable[[Mapping[HostAddress, UnfinishedLine]], None],
    ) -> None:
        self._wakeup = threading.Condition(lock)
        self._read = read
        self._show = show
        self._lines: dict[HostAddress, UnfinishedLine] = {}
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Look at the lines from now on, until none is unfinished."""
        if self._thread is None and self._read():
            self._thread = threading.Thread(target=self._run, daemon=True, name="unfinished-lines")
            self._thread.start()

    def end(self, host: HostAddress) -> bytes:
        """Forget the line of a host, since it has its end; return what was written of it."""
        line = self._lines.pop(host, None)
        return line.written if line is not None else b""

    def close(self) -> None:
        """Forget all lines."""
        self._lines.clear()
        self._wakeup.notify_all()

    def look(self) -> None:
        """Show the lines as they are now."""
        self._update(self._read(), time.monotonic())
        self._show(self._lines)

    def _run(self) -> None:
        with self._wakeup:
            while True:
                self._wakeup.wait(REDRAW_SECONDS)
                if not self._read():
                    break
                try:
                    self.look()
                except (OutputClosed, OSError):  # the thread that writes complete lines finds and reports the same
                    break
            self._thread = None

    def _update(self, unfinished: Mapping[HostAddress, bytes], now: float) -> None:
        for host in [one for one in self._lines if one not in unfinished]:
            del self._lines[host]
        for host, received in unfinished.items():
            text = received[: len(received) - _count_cut_bytes(received)]
            line = self._lines.get(host)
            if line is None and text.strip():
                self._lines[host] = UnfinishedLine(text, begun=now, changed=now)
            elif line is not None and line.text != text:
                line.text, line.changed = text, now


class LiveLines:
    """Unfinished lines at the end of a terminal, which are rewritten; the caller holds the lock of the terminal.

    Args:
        write: Writes to the terminal.
        prefix: Returns the begin of a host's line.
        paint: Colours a line.
    """

    def __init__(
        self, write: Callable[[bytes], object], prefix: Callable[[HostAddress], bytes], paint: Callable[[bytes], bytes]
    ) -> None:
        self._write = write
        self._prefix = prefix
        self._paint = paint
        self._drawn: list[str] = []  # as they were drawn last, also when they were erased since
        self._drawn_at = -math.inf
        self.visible = 0  # lines of the terminal that are ours now

    def draw(self, lines: Mapping[HostAddress, UnfinishedLine], make_room: Callable[[], None]) -> None:
        """Draw the lines, unless they stand there already or were drawn just now.

        Lines that were erased for something else come back when they change, or after a line of output.
        """
        now = time.monotonic()
        text = self._compose(lines)
        if text == self._drawn or now - self._drawn_at < REDRAW_SECONDS * 0.9:  # the timer's own period is not exact
            return
        make_room()
        self._write(self._take_off() + b"\r\n".join(self._paint(line.encode()) for line in text))
        self._drawn, self._drawn_at, self.visible = text, now, len(text)

    def erase(self) -> None:
        """Take the lines off the terminal."""
        if self.visible:
            self._write(self._take_off())
            self.visible = 0

    def forget(self) -> None:
        """Draw the lines again although they do not change: a line of output took their place."""
        self._drawn = []

    def _take_off(self) -> bytes:
        up = f"\x1b[{self.visible - 1}A" if self.visible > 1 else ""
        return f"{up}\r\x1b[J".encode() if self.visible else b""

    def _compose(self, lines: Mapping[HostAddress, UnfinishedLine]) -> list[str]:
        columns, rows = shutil.get_terminal_size()
        most = max(min(MOST_HOSTS, rows - 2), 1)
        ordered = sorted(lines.items(), key=lambda item: item[0].rank)
        text = [_fit(self._prefix(host).decode() + _plain(line.text), columns - 1) for host, line in ordered[:most]]
        return text if len(ordered) <= most else [*text, f"… and {len(ordered) - most} more hosts"]


def _count_cut_bytes(text: bytes) -> int:
    """Return how many bytes at the end are the begin of a UTF-8 character whose rest has not come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text[-4:])
    return len(decoder.getstate()[0])


def _plain(state: bytes) -> str:
    """Return a state as text without colours, in which nothing moves the cursor."""
    text = state[:_LONGEST_STATE].decode("utf-8", "replace")
    return escape_controls(_COLOURS.sub("", text).replace("\t", " "))


def _fit(line: str, columns: int) -> str:
    """Cut a line so that it never wraps, since a wrapped line cannot be erased."""
    used = 0
    for at, letter in enumerate(line):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > columns:
            return line[: at - 1] + "…"
    return line
