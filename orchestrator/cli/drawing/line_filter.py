"""A sink that passes on only the lines that match a pattern."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from orchestrator.hosts import HostAddress


class LineFilter:
    """Passes complete lines that match on to `sink`; blocks of several hosts may come from several threads."""

    def __init__(self, pattern: re.Pattern[bytes], sink: Callable[[HostAddress, bytes], None]) -> None:
        self._pattern = pattern
        self._sink = sink
        self._lock = threading.Lock()
        self._rest: dict[HostAddress, bytes] = {}  # the unfinished last line of each host

    def write(self, host: HostAddress, block: bytes) -> None:
        """Take a block of a host's output."""
        with self._lock:
            *lines, rest = (self._rest.pop(host, b"") + block).split(b"\n")
            self._rest[host] = rest
        self._pass_on(host, [line + b"\n" for line in lines])

    def finish(self) -> None:
        """Take the last lines that have no end as complete."""
        with self._lock:
            left, self._rest = self._rest, {}
        for host, rest in left.items():
            self._pass_on(host, [rest] if rest else [])

    def _pass_on(self, host: HostAddress, lines: list[bytes]) -> None:
        kept = b"".join(line for line in lines if self._pattern.search(line))
        if kept:
            self._sink(host, kept)
