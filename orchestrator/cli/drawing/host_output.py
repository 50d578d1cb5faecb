"""Print the hosts' output on one of our streams without disturbing what else is drawn there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO, BinaryIO, cast

from orchestrator.cli.drawing.host_text import TerminalText
from orchestrator.cli.drawing.terminal import OutputClosed
from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter, prefix_for

_PALETTE = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # colours of prefixes, by rank


class HostOutput:
    """A printer for blocks of output from any host.

    Args:
        stream: Where the lines go.
        prefix: Whether each line begins with its host.
        raw: Whether bytes are printed as they came; else a terminal gets no control characters of hosts.
        colour: Whether prefixes are coloured by rank.
        lock: Held during each write.
        make_room: Called before each write, to remove a line that is being rewritten.
        on_closed: Called once when the reader has closed the stream; later output is dropped. None: raise OutputClosed.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        prefix: bool,
        raw: bool,
        colour: bool,
        lock: threading.RLock,
        make_room: Callable[[], None],
        on_closed: Callable[[], None] | None,
    ) -> None:
        self._stream = _SharedStream(stream, lock, make_room, on_closed, colour=colour and prefix)
        self._text = None if raw else TerminalText()
        clean = None if self._text is None else self._text.clean
        self._printer = LinePrinter(cast("IO[bytes]", self._stream), prefix=prefix, clean=clean)

    def write(self, host: HostAddress, block: bytes) -> None:
        """Print a block of output of one host, line by line."""
        self._printer(host, block)

    def finish(self) -> None:
        """Print lines that never got their end."""
        self._printer.close()
        for host, note in self._text.finish() if self._text is not None else ():
            self._stream.write(prefix_for(host) + note)


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


def _painted(lines: bytes) -> bytes:
    """Colour the prefix of each line by rank; all lines of a block have the same prefix."""
    name, found, _ = lines.partition(b") ")
    rank = name.partition(b"rank=")[2].partition(b",")[0]
    if not found or not rank.isdigit():
        return lines
    prefix = name + b")"
    painted = b"\x1b[%dm%s\x1b[0m" % (_PALETTE[int(rank) % len(_PALETTE)], prefix)
    return painted + lines[len(prefix) :].replace(b"\n" + prefix, b"\n" + painted)
