"""The output of many hosts on one stream: complete lines, each with its host's name, in large writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO

from orchestrator.hosts import HostAddress

_LONGEST = 1 << 20  # bytes of one line after which it is broken, so that a stream without line ends is shown too


class LinePrinter:
    """Call it from any thread with (host, block); call `close` at the end for last lines without an end.

    prefix: put "(worker2, rank=2, 10.0.0.4) " before every line. A line is never mixed with another host's.
    clean: changes complete lines before they get their prefix; b"" for none.
    """

    def __init__(
        self, stream: IO[bytes], *, prefix: bool = True, clean: Callable[[HostAddress, bytes], bytes] | None = None
    ) -> None:
        self._stream = stream
        self._prefix = prefix
        self._clean = clean
        self._lock = threading.Lock()
        self._pending: dict[HostAddress, bytes] = {}

    def __call__(self, host: HostAddress, block: bytes) -> None:
        held = self._pending.pop(host, b"")  # one thread per host: its remainder needs no lock
        end = block.rfind(b"\n") + 1
        if not end and len(held) + len(block) < _LONGEST:
            if held or block:
                self._pending[host] = held + block
            return
        if not end:
            block, end = block + b"\n", len(block) + 1
        if end < len(block):
            self._pending[host] = block[end:]
        self._write(host, held + block[:end])

    def close(self) -> None:
        """Write the incomplete last lines, and flush."""
        for host, held in sorted(self._pending.items(), key=lambda item: item[0].rank):
            self._write(host, held + b"\n")
        self._pending.clear()
        with self._lock:
            self._stream.flush()

    def _write(self, host: HostAddress, lines: bytes) -> None:
        """Write `lines`, which end in a line end, with the host's prefix."""
        if self._clean is not None and not (lines := self._clean(host, lines)):
            return
        if self._prefix:
            name = prefix_for(host)
            lines = name + lines[:-1].replace(b"\n", b"\n" + name) + b"\n"
        with self._lock:
            self._stream.write(lines)
            self._stream.flush()


def prefix_for(host: HostAddress) -> bytes:
    """Return the prefix of a host's lines."""
    return f"({host.label}, rank={host.rank}, {host.internal_ip}) ".encode()
