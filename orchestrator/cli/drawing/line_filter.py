"""A sink that passes on only the lines that match a pattern."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter


def filter_lines(pattern: re.Pattern[bytes], sink: Callable[[HostAddress, bytes], None], *, raw: bool) -> LinePrinter:
    """Return a sink that passes complete lines that match on to `sink`; its `close` takes the last ones as complete.

    Args:
        pattern: What is searched for in each line.
        sink: Gets the lines; several hosts may send them from several threads.
        raw: Whether a line keeps what a carriage return overwrote.
    """

    def pass_on(host: HostAddress, lines: bytes) -> bytes:
        matching = b"".join(line + b"\n" for line in lines.split(b"\n")[:-1] if pattern.search(line))
        if matching:
            sink(host, matching)
        return b""

    return LinePrinter(io.BytesIO(), prefix=False, clean=pass_on, exact=raw)
