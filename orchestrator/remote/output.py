"""The output of many hosts on one stream: complete lines, each with its host's name, in large writes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import IO

from orchestrator.hosts import HostAddress

_LONGEST = 1 << 20  # bytes of one line after which it is broken, so that a stream without line ends is shown too


# A bar below another one: tqdm goes to the next line, writes, and comes back.
# Source: moveto of tqdm/std.py, tqdm/tqdm at 000ba6fa (read 2026-11-30).
_BELOW = re.compile(rb"\n([^\n\x1b]*(?:\x1b\[[0-9;]*m[^\n\x1b]*)*)\x1b\[1?A")


class LinePrinter:
    """Call it from any thread with (host, block); call `close` at the end for last lines without an end.

    prefix: put "(worker2, rank=2, 10.0.0.4) " before every line. A line is never mixed with another host's.
    clean: changes complete lines before they get their prefix; b"" for none.
    exact: write also what a carriage return overwrote, such as the earlier states of a progress bar.
    """

    def __init__(
        self,
        stream: IO[bytes],
        *,
        prefix: bool = True,
        clean: Callable[[HostAddress, bytes], bytes] | None = None,
        exact: bool = True,
    ) -> None:
        self._stream = stream
        self._prefix = prefix
        self._clean = clean
        self._exact = exact
        self._lock = threading.Lock()
        self._pending: dict[HostAddress, bytearray] = {}

    def __call__(self, host: HostAddress, block: bytes) -> None:
        pending = self._pending.pop(host, None) or bytearray()  # one thread per host: its remainder needs no lock
        if not self._exact and b"\x1b[" in block:
            block = _BELOW.sub(rb"\r\1\r", block)
        end = block.rfind(b"\n") + 1
        if end:
            end += len(pending)
        pending += block
        if not end and len(pending) >= _LONGEST:
            pending += b"\n"
            end = len(pending)
        lines = bytes(pending[:end])
        del pending[:end]
        if not self._exact:
            del pending[: pending.rstrip(b"\r").rfind(b"\r") + 1]
        if pending:
            self._pending[host] = pending
        if lines:
            self._write(host, lines)

    def read_unfinished(self) -> dict[HostAddress, bytes]:
        """Return what each host has written of a line that has no end yet, as a terminal would show it now."""
        return {host: find_last_state(bytes(text)) for host, text in list(self._pending.items())}

    def close(self) -> None:
        """Write the incomplete last lines, and flush."""
        for host, pending in sorted(self._pending.items(), key=lambda item: item[0].rank):
            self._write(host, bytes(pending) + b"\n")
        self._pending.clear()
        with self._lock:
            self._stream.flush()

    def _write(self, host: HostAddress, lines: bytes) -> None:
        """Write `lines`, which end in a line end, with the host's prefix."""
        if not self._exact and b"\r" in lines:
            lines = b"\n".join(map(find_last_state, lines.split(b"\n")))
        if self._clean is not None and not (lines := self._clean(host, lines)):
            return
        if self._prefix:
            name = prefix_for(host)
            lines = name + lines[:-1].replace(b"\n", b"\n" + name) + b"\n"
        with self._lock:
            self._stream.write(lines)
            self._stream.flush()


def find_last_state(line: bytes) -> bytes:
    """Return what a terminal would finally show of a line: a carriage return begins it again."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def prefix_for(host: HostAddress) -> bytes:
    """Return the prefix of a host's lines."""
    return f"({host.label}, rank={host.rank}, {host.internal_ip}) ".encode()
