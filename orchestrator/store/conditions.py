"""Conditions of SQL queries."""

from __future__ import annotations

from collections.abc import Collection


def where_in(column: str, values: Collection[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a condition that a column has one of the values, and the values; None for any."""
    if values is None:
        return "1 = 1", ()
    listed = tuple(sorted(values))
    return (f"{column} IN ({', '.join('?' * len(listed))})", listed) if listed else ("1 = 0", ())
