"""Format and parse numbers for people: sizes, durations, prices, sets of hosts, aligned columns."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most commands need no bills
    from decimal import Decimal

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[smhd])[a-z]*")
COUNT_FORM = r"\d+(?:\.\d+)?(?:e\+?\d{1,3})?[kmbtKMBT]?"
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def format_size(count: int) -> str:
    """Format bytes, such as `40 KiB`."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """Format seconds, such as `0.2 s`, `12 s`, `5 min`, `2 h 10 min`, `3 d 4 h`."""
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


def parse_duration(text: str) -> int:
    """Return the seconds of `90s`, `10m`, `2h` or `3d`.

    Raises:
        ValueError: The text is no duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a duration")
    return int(float(found["number"]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found["unit"]])


def parse_deadline(text: str, since: float = 0.0) -> float:
    """Return the epoch seconds of `36h` or `5d` after a moment, or of a date such as 2026-12-24.

    Args:
        text: The deadline; a date without an offset is in UTC.
        since: From when a duration counts.

    Raises:
        ValueError: The text is neither.
    """
    if _DURATION.fullmatch(text.strip()):
        return since + parse_duration(text)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_count(text: str) -> float:
    """Return the number of `300M`, `20B` or `1e22`.

    Raises:
        ValueError: The text is no such number.
    """
    if re.fullmatch(COUNT_FORM, text) is None:
        raise ValueError(f"'{text}' is not a number such as 20B")
    number, scale = (text, "") if text[-1].isdigit() else (text[:-1], text[-1].lower())
    return float(number) * _SCALES[scale]


def format_age(then: float, now: float | None = None) -> str:
    """Format the time since `then`, such as `12 s ago`; "" when `then` is 0."""
    return f"{format_duration((time.time() if now is None else now) - then)} ago" if then else ""


def format_local_time(at: float) -> str:
    """Format epoch seconds as local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def format_utc(at: float) -> str:
    """Format epoch seconds as UTC in ISO 8601, for JSON."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def parse_utc(text: str) -> float:
    """Return the epoch seconds that `format_utc` wrote."""
    return datetime.fromisoformat(text).timestamp()


def format_amount(dollars: float | Decimal, digits: int = 2) -> str:
    """Format US dollars, to the cent. Estimates are to the dollar (`digits` 0); small costs may need more digits."""
    return f"${dollars:,.{digits}f}"


def format_amount_range(low: float, high: float, digits: int = 2) -> str:
    """Format a range of US dollars; one amount where both are equal."""
    least, most = format_amount(low, digits), format_amount(high, digits)
    return most if low == high else f"{least} to {most}"


def format_short_amount(dollars: float) -> str:
    """Format US dollars to the cent below $100, and to the dollar from there on."""
    return format_amount(dollars, 2 if dollars < 100 else 0)


def format_rate(per_hour: float) -> str:
    """Format US dollars an hour that are known."""
    return f"{format_amount(per_hour)}/h"


def format_price(per_hour: float | None) -> str:
    """Format US dollars an hour; an unknown price is never shown as 0."""
    if per_hour is None:
        return "price not known"
    return "free" if per_hour == 0 else format_rate(per_hour)


def format_dollars(value: float | None) -> str:
    """Format US dollars with the digits that a small amount needs; an unknown amount is never shown as 0."""
    if value is None:
        return "not known"
    if value == 0:
        return "free"
    return format_amount(value, 2 if value >= 1 else 4)


def format_microdollars(amount: int) -> str:
    """Format whole micro-dollars to the cent; what is less than a cent is not shown as nothing."""
    sign, dollars = "-" if amount < 0 else "", abs(amount) / 1e6
    return f"{sign}{format_amount(dollars) if dollars >= 0.01 or amount == 0 else 'under $0.01'}"


def format_run_cost(dollars: float | None) -> str:
    """Format the cost of a run; a cost that is not known is never shown as 0."""
    if dollars is None:
        return "not known"
    return format_microdollars(round(dollars * 1e6)) if dollars else "free"


def parse_ranges(text: str) -> tuple[int, ...]:
    """Parse `0,3-5` as ranks in rising order, each once.

    Raises:
        ValueError: The text is not a list of ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", part)
        if found is None:
            raise ValueError(f"'{text}' is not a list of hosts")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low:
            raise ValueError(f"'{part.strip()}' runs backwards")
        ranks.update(range(low, high + 1))
    return tuple(sorted(ranks))


def align_columns(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Align rows in columns; the last column keeps its length, or lines are cut at `width`."""
    if not rows:
        return []
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    lines: list[str] = []
    for row in rows:
        cells = [f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…")
    return lines
