"""Numbers as people read and write them: sizes, times, prices, sets of hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)


def size(count: int) -> str:
    """Bytes as `40 KiB`."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def parse_size(text: str) -> int:
    """`120000`, `64KiB`, `1.5M` (all powers of 1024) as bytes. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is no size")
    power = "BKMGT".index(found["unit"].upper() or "B")
    return int(float(found["number"]) * 1024**power)


def duration(seconds: float) -> str:
    """`0.2 s`, `12 s`, `5 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def ago(then: float, now: float | None = None) -> str:
    """`12 s ago`; "" for never."""
    return f"{duration((time.time() if now is None else now) - then)} ago" if then else ""


def clock(at: float) -> str:
    """Local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def iso(at: float) -> str:
    """UTC, for JSON."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def price(per_hour: float | None) -> str:
    """Never 0 for a price that is not known."""
    if per_hour is None:
        return "price not known"
    return "free" if per_hour == 0 else f"${per_hour:,.2f}/h"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def parse_ranges(text: str) -> tuple[int, ...]:
    """`0,3-5` as ranks in rising order, each once. Raises ValueError."""
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", part)
        if found is None:
            raise ValueError(f"'{text}' is no list of hosts")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low:
            raise ValueError(f"'{part.strip()}' runs backwards")
        ranks.update(range(low, high + 1))
    return tuple(sorted(ranks))


def columns(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows under each other; the last column is as long as it is, or cut at `width`."""
    if not rows:
        return []
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    lines: list[str] = []
    for row in rows:
        cells = [f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…")
    return lines
