"""Draw tables that fit the terminal, or 80 columns elsewhere; wide cells continue on further lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TextIO

from orchestrator.cli.drawing.terminal import Style, inspect_terminal

DEFAULT_WIDTH = 80  # columns, where the stream is not a terminal
GAP = 2  # spaces between two columns


def draw_table(
    rows: Sequence[Sequence[str]],
    stream: TextIO,
    *,
    indent: int = 0,
    optional: Sequence[str] = (),
    whole: bool = False,
    least: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """Return the lines of a table whose first row is its head.

    The `optional` columns, named by their heads, are left out one after the other while the words do not fit; with
    `whole`, while the cells do not fit without being wrapped. `least` is the width that a column of prose, named by its
    head, keeps for that.
    """
    terminal = inspect_terminal(stream)
    width = (terminal.width or _columns()) - indent
    for name in filter(rows[0].__contains__, optional):
        if sum(_longest_cells(rows) if whole else _least_widths(rows, least)) + GAP * (len(rows[0]) - 1) <= width:
            break
        index = rows[0].index(name)
        rows = [(*row[:index], *row[index + 1 :]) for row in rows]
    head, *rest = fit_columns(rows, width)
    margin = " " * indent
    return [margin + terminal.paint(head, Style.BOLD), *(margin + line for line in rest)]


def draw_list(rows: Sequence[Sequence[str]], stream: TextIO, *, indent: int = 0) -> list[str]:
    """Return the lines of a table without a head, such as names with their values."""
    margin = " " * indent
    width = inspect_terminal(stream).width or _columns()
    return [margin + line for line in fit_columns(rows, width - indent)]


def fit_columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Align rows in columns within `width`: the widest columns are narrowed, and their text is wrapped.

    A word is never broken, so that names, paths and addresses can be copied: a row of long words may be wider.
    """
    if not rows:
        return []
    widths = _longest_cells(rows)
    room = width - GAP * (len(widths) - 1)
    if sum(widths) > room:
        _narrow(widths, _longest_words(rows), room)
    return [line for row in rows for line in _row_lines(row, widths)]


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Take characters from the widest columns that can be narrowed, until the table fits or nothing is left to take."""
    while sum(widths) > room:
        index = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else -1)
        if widths[index] <= least[index]:
            return
        widths[index] -= 1


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [[cell] if len(cell) <= width else _wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    gap = " " * GAP
    return [
        gap.join(
            f"{cell[number] if number < len(cell) else '':<{width}}" for cell, width in zip(cells, widths, strict=True)
        ).rstrip()
        for number in range(max(map(len, cells)))
    ]


def _wrap(cell: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False) or [""]


def _longest_cells(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _longest_words(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the length of the longest word of each column."""
    return [
        max((len(word) for cell in column for word in cell.split()), default=0) for column in zip(*rows, strict=True)
    ]


def _least_widths(rows: Sequence[Sequence[str]], least: Mapping[str, int]) -> list[int]:
    """Return the width that each column needs, with what its prose keeps."""
    cells = zip(rows[0], _longest_words(rows), _longest_cells(rows), strict=True)
    return [max(word, min(least.get(head, 0), longest)) for head, word, longest in cells]


def _columns() -> int:
    import os

    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else DEFAULT_WIDTH
