"""Print the hosts' output on one of our streams without disturbing what else is drawn there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, BinaryIO, cast

from orchestrator.cli.drawing.host_text import TerminalText
from orchestrator.cli.drawing.terminal import OutputClosed, Terminal
from orchestrator.cli.drawing.unfinished_lines import LiveLines, UnfinishedLine, UnfinishedLines
from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter, prefix_for

_PALETTE = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # colours of prefixes, by rank


class HostOutput:
    """A printer for blocks of output from any host.

    Args:
        stream: Where the lines go.
        terminal: What the stream can show.
        prefix: Whether each line begins with its host.
        raw: Whether all bytes are printed as they came. Else a terminal gets no control characters of hosts, and
            what a carriage return overwrites is left out; without prefixes a pipe gets that too.
        lock: Held during each write.
        make_room: Called before each write, to remove a line that is being rewritten.
        on_closed: Called once when the reader has closed the stream; later output is dropped. None: raise OutputClosed.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        terminal: Terminal,
        prefix: bool,
        raw: bool,
        lock: threading.RLock,
        make_room: Callable[[], None],
        on_closed: Callable[[], None] | None,
    ) -> None:
        pipe = terminal.width is None
        self._lock = lock
        self._make_room = make_room
        self._live = terminal.live
        self._prefix = prefix
        colour = terminal.colour and prefix
        self._stream = _SharedStream(stream, lock, self._clear, on_closed, colour=colour)
        self._text = None if raw or pipe else TerminalText()
        self._printer = LinePrinter(
            cast("IO[bytes]", self._stream), prefix=prefix, clean=self._clean, exact=raw or (pipe and not prefix)
        )
        self._own_bytes = pipe and (raw or not prefix)
        self._unfinished = UnfinishedLines(lock, self._printer.read_unfinished, self._show)
        self._lines = LiveLines(
            self._stream.write_live, prefix_for if prefix else _no_prefix, _painted if colour else bytes
        )

    @property
    def is_live(self) -> bool:
        """True while unfinished lines stand on the terminal."""
        return self._lines.visible > 0

    def write(self, host: HostAddress, block: bytes) -> None:
        """Print a block of output of one host, line by line, and what it has of a line without an end."""
        with self._lock:
            visible = self.is_live
            self._printer(host, block)
            if visible and not self.is_live:  # a complete line took the place of those without an end
                self._unfinished.look()
            if not self._own_bytes:
                self._unfinished.watch()

    def erase(self) -> None:
        """Remove unfinished lines from the terminal, so that something else can be written."""
        with self._lock:
            self._lines.erase()

    def finish(self) -> None:
        """Print lines that never got their end."""
        with self._lock:
            self._printer.close()
            self._unfinished.close()
            for host, note in self._text.finish() if self._text is not None else ():
                self._stream.write(prefix_for(host) + note)

    def _clear(self) -> None:
        self._make_room()
        self._lines.erase()
        self._lines.forget()

    def _clean(self, host: HostAddress, lines: bytes) -> bytes:
        written = self._unfinished.end(host)
        if written and lines.startswith(written + b"\n"):  # it stands there since a pause
            lines = lines[len(written) + 1 :]
        return lines if self._text is None or not lines else self._text.clean(host, lines)

    def _show(self, lines: Mapping[HostAddress, UnfinishedLine]) -> None:
        if self._live:
            self._lines.draw(lines, self._make_room)
            return
        now = time.monotonic()
        for host, line in lines.items():
            if line.is_due(now):
                line.written, line.written_at = line.text, now
                self._print_state(host, line.text + b"\n")

    def _print_state(self, host: HostAddress, state: bytes) -> None:
        if self._text is not None:
            state = self._text.clean(host, state)
        if state:
            self._stream.write(prefix_for(host) + state if self._prefix else state)


class _SharedStream:
    """As much of a stream as LinePrinter needs."""

    def __init__(
        self,
        stream: BinaryIO,
        lock: threading.RLock,
        make_room: Callable[[], None],
        on_closed: Callable[[], None] | None,
        *,
        colour: bool,
    ) -> None:
        self._stream = stream
        self._lock = lock
        self._make_room = make_room
        self._on_closed = on_closed
        self._colour = colour
        self._closed = False

    def write(self, lines: bytes) -> int:
        """Write complete lines of one host."""
        with self._lock:
            self._make_room()
            self._guarded(lambda: self._stream.write(_painted(lines) if self._colour else lines))
        return len(lines)

    def write_live(self, text: bytes) -> None:
        """Write text that will be rewritten, where there is room for it."""
        with self._lock:
            self._guarded(lambda: self._stream.write(text))
            self._guarded(self._stream.flush)

    def flush(self) -> None:
        with self._lock:
            self._guarded(self._stream.flush)

    def _guarded(self, do: Callable[[], object]) -> None:
        if self._closed:
            return
        try:
            do()
        except BrokenPipeError as error:
            if self._on_closed is None:
                raise OutputClosed from error
            self._closed = True
            self._on_closed()


def _no_prefix(_host: HostAddress) -> bytes:
    return b""


def _painted(lines: bytes) -> bytes:
    """Colour the prefix of each line by rank; all lines of a block have the same prefix."""
    name, found, _ = lines.partition(b") ")
    rank = name.partition(b"rank=")[2].partition(b",")[0]
    if not found or not rank.isdigit():
        return lines
    prefix = name + b")"
    painted = b"\x1b[%dm%s\x1b[0m" % (_PALETTE[int(rank) % len(_PALETTE)], prefix)
    return painted + lines[len(prefix) :].replace(b"\n" + prefix, b"\n" + painted)
