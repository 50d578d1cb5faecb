"""The hosts' output on one of our streams, beside whatever else is drawn there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO, BinaryIO, cast

from orchestrator.cli.terminal import ReaderLeft
from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter

_PALETTE = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # colours of prefixes, by rank


class Output:
    """Give it blocks of any host with `write`; `finish` writes lines that never got their end.

    lock, make_room: taken and called before each write, so that a living line is out of the way. on_closed: called
    once when nobody reads the stream any more, and what follows is dropped; without it ReaderLeft is raised.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        prefix: bool,
        colour: bool,
        lock: threading.RLock,
        make_room: Callable[[], None],
        on_closed: Callable[[], None] | None,
    ) -> None:
        self._beside = _Beside(stream, lock, make_room, on_closed, colour=colour and prefix)
        self._printer = LinePrinter(cast("IO[bytes]", self._beside), prefix=prefix)

    def write(self, host: HostAddress, block: bytes) -> None:
        self._printer(host, block)

    def finish(self) -> None:
        self._printer.close()


class _Beside:
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
        """Whole lines of one host."""
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
                raise ReaderLeft from error
            self._closed = True
            self._on_closed()


def _painted(lines: bytes) -> bytes:
    """Every prefix in its host's colour. LinePrinter begins each line of a block with the same one."""
    name, found, _ = lines.partition(b") ")
    rank = name.partition(b"rank=")[2].partition(b",")[0]
    if not found or not rank.isdigit():
        return lines
    prefix = name + b")"
    painted = b"\x1b[%dm%s\x1b[0m" % (_PALETTE[int(rank) % len(_PALETTE)], prefix)
    return painted + lines[len(prefix) :].replace(b"\n" + prefix, b"\n" + painted)
